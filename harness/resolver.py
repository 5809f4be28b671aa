"""Looking up host names without DNS, for a while, in this process only.

c10d asks for the name of every address that it connects to, for its messages; for 127.0.0.1, which it
writes as ::ffff:127.0.0.1, most machines answer from DNS, and a lost packet holds a world up for
seconds. glibc's `__nss_configure_lookup` has it look into /etc/hosts alone. Not modelled: other C
libraries (nothing happens there). """

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

CONFIGURED = Path("/etc/nsswitch.conf")
USUAL = "files dns"


def _configure(sources: str) -> None:
    configure = getattr(ctypes.CDLL(None), "__nss_configure_lookup", None)
    if configure is not None:
        configure(b"hosts", sources.encode())


def usual() -> str:
    """Where this machine looks for host names."""
    with contextlib.suppress(OSError):
        for line in CONFIGURED.read_text(encoding="utf-8").splitlines():
            if line.startswith("hosts:"):
                return line.removeprefix("hosts:").partition("#")[0].strip() or USUAL
    return USUAL


def without_dns() -> None:
    """From now on."""
    _configure("files")


@contextlib.contextmanager
def no_dns() -> Iterator[None]:
    """Inside the block."""
    without_dns()
    try:
        yield
    finally:
        _configure(usual())
