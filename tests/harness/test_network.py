"""A namespace for each rank: what gloo does when the network between two ranks is cut, slow or lossy."""

import subprocess
from pathlib import Path

import pytest

from harness import network as networks
from harness.errors import NotHere, UsageError
from harness.fabric.real_ranks import run_real
from harness.network import Cut, Loss, Network, Reset, Slow, unavailable
from harness.supervise import Limits

LIMITS = Limits(operation=3, plan=60)
PATIENT = Limits(operation=40, plan=100)
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(8):
    x = torch.full((1 << 14,), step + 1)
    dist.all_reduce(x)
    assert x.eq((step + 1) * dist.get_world_size()).all(), step
print("right")
"""
here = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "it is here")
with_rules = pytest.mark.skipif(
    bool(unavailable(rules=True)), reason=unavailable(rules=True) or "it is here"
)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def ran(script, *troubles, ranks=2, limits=LIMITS):
    with Network(ranks, troubles) as network:
        outcome = run_real(script, ranks=ranks, network=network, limits=limits)
        assert network.happened == [1] * len(troubles)
    return outcome


def right(outcome):
    return [one.printed for one in outcome.ranks] == ["right\n"] * len(outcome.ranks)


@here
def test_a_cut_link_is_an_error_in_time_on_both_sides(script):
    outcome = ran(script, Cut(rank=1, call=3))
    assert [one.code for one in outcome.ranks] == [1, 1]
    assert all("Timed out waiting 3000ms" in one.error for one in outcome.ranks)
    assert all(len(one.calls) == 4 for one in outcome.ranks)
    assert outcome.findings() == ()


@here
def test_a_partition_that_heals_in_time_is_not_noticed(script):
    assert right(ran(script, Cut(rank=1, call=3, milliseconds=400), limits=PATIENT))


@here
@pytest.mark.nightly
def test_a_slow_link_is_right(script):
    assert right(ran(script, Slow(rank=0, call=2, kilobits=20_000), limits=PATIENT))


@with_rules
@pytest.mark.nightly
def test_lost_packets_are_sent_again(script):
    assert right(ran(script, Loss(rank=1, call=1, percent=10), ranks=3, limits=PATIENT))


@with_rules
@pytest.mark.nightly
def test_a_reset_is_an_error_in_time_on_both_sides(script):
    outcome = ran(script, Reset(rank=1, call=3))
    assert [one.code for one in outcome.ranks] == [1, 1]
    assert outcome.findings() == ()


@here
def test_nothing_is_left_behind():
    with Network(2) as network:
        held = list(network.keepers)
        assert len({Path(f"/proc/{pid}/ns/net").readlink() for pid in held}) == 2
        reached = subprocess.run(
            ["nsenter", "-t", str(held[0]), "-n", "ip", "route", "get", network.addresses[1]],
            capture_output=True, text=True,
        )
        assert "dev eth0" in reached.stdout
    assert not any(Path(f"/proc/{pid}").exists() for pid in held)
    links = subprocess.run(["ip", "link"], capture_output=True, text=True).stdout
    assert "wire0" not in links


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match=r"network: given 0 ranks; allowed 1\.\.64"):
        Network(0)
    with pytest.raises(UsageError, match=r"network: troubles\[0\].rank: 2 is outside 0\.\.1"):
        Network(2, [Cut(rank=2)])


def test_without_root_or_tools_it_says_why(monkeypatch):
    unavailable.cache_clear()
    monkeypatch.setattr(networks.os, "geteuid", lambda: 1000)
    assert unavailable() == "no network namespaces: they need root"
    with pytest.raises(NotHere, match="they need root"), Network(1):
        pass
    unavailable.cache_clear()
    monkeypatch.setattr(networks.os, "geteuid", lambda: 0)
    monkeypatch.setattr(networks.shutil, "which", lambda name: None if name == "nft" else name)
    assert unavailable(rules=True) == "no network namespaces: nft is not installed"
    unavailable.cache_clear()
