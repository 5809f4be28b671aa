"""Host names without DNS: an address that /etc/hosts lacks has no name, one that it has keeps it."""

import socket

import pytest

from harness import resolver
from harness.supervise import forked

NOT_THERE = "name-that-only-dns-could-know.invalid"


def ended(body):
    child = forked(body)
    try:
        return child.ended(within=60)
    finally:
        child.close()


def test_hosts_keep_their_names_and_nobody_else_is_asked():
    def body():
        with resolver.no_dns():
            assert socket.gethostbyname("localhost") == "127.0.0.1"
            for _ in range(50):  # DNS could not answer so often without any of the time it takes
                with pytest.raises(socket.gaierror):
                    socket.gethostbyname(NOT_THERE)
        assert socket.gethostbyname("localhost") == "127.0.0.1"

    ending = ended(body)
    assert ending is not None
    assert ending.code == 0, ending.log


def test_what_is_configured_comes_back(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr(resolver, "_configure", told.append)
    monkeypatch.setattr(resolver, "CONFIGURED", tmp_path / "nsswitch.conf")
    (tmp_path / "nsswitch.conf").write_text("passwd: files\nhosts:  files mdns4 dns # all\n")
    with resolver.no_dns():
        assert told == ["files"]
    assert told == ["files", "files mdns4 dns"]
    (tmp_path / "nsswitch.conf").unlink()
    assert resolver.usual() == "files dns"
