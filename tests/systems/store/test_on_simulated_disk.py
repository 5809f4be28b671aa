"""The embedded store on the simulated disk, under each storage fault at every operation.

Whatever happens, a load that reports success holds the right bytes, and what was committed under
durability `fsync` is there after a power cut (the disk's durable image).
"""

from __future__ import annotations

import hashlib

import pytest
import torch

from faults import storage
from harness import SimulatedDisk, registry
from harness.interpose import Interposer
from systems.store import UcmConnectorFactory
from systems.store.errors import StoreError

IDS = [hashlib.md5(b"%d" % number).digest() for number in range(3)]
KINDS = sorted(  # but those of the clock: this one stands still
    name
    for name, kind in registry.faults().items()
    if kind.__module__ == storage.__name__ and name != "clock_jump"
)


class Flag:
    """An event that nobody has to wait for."""

    def __init__(self):
        self._set = False

    def set(self):
        self._set = True

    def is_set(self):
        return self._set

    def wait(self, timeout=None):
        return self._set


class Inline:
    """Runs each job where it is submitted."""

    def submit(self, job):
        job()

    def close(self):
        pass

    def event(self):
        return Flag()


class Still:
    """A clock that stands still."""

    def now(self):
        return 0.0

    def time(self):
        return 1e9


def opened(disk, **config):
    return UcmConnectorFactory.create_connector(
        "UcmPosixStore", {"storage_path": "/store", "durability": "fsync", **config},
        disk=disk, executor=Inline(), clock=Still(),
    )


SOURCE = torch.arange(3 * 3000, dtype=torch.float32).reshape(3, 3000)


def round_trip(disk, **config):
    """Codes of dump and commits, which ids are there, the load's code, whether its bytes are right."""
    store = opened(disk, **config)
    dumped = store.wait(store.dump(IDS, 0, SOURCE))
    committed = store.commit(IDS, [True] * 3)
    target = torch.full_like(SOURCE, -1.0)
    loaded = store.wait(store.load(IDS, 0, target))
    return dumped, list(committed), store.lookup(IDS), loaded, bool(torch.equal(target, SOURCE))


@pytest.mark.parametrize("direct", [False, True])
def test_a_round_trip_and_a_power_cut(direct):
    disk = SimulatedDisk(direct_block=4096)
    assert round_trip(disk, io_direct=direct) == (0, [0] * 3, [True] * 3, 0, True)
    after = opened(disk.durable())
    assert after.lookup(IDS) == [True] * 3
    target = torch.zeros_like(SOURCE)
    assert after.wait(after.load(IDS, 0, target)) == 0
    assert torch.equal(target, SOURCE)


@pytest.mark.parametrize("name", KINDS)
def test_no_fault_at_any_operation_corrupts_silently(name):
    kind = registry.faults()[name]
    fired = 0
    for nth in range(400):
        door = Interposer((kind(nth=nth),), lambda index, op: None)
        disk = SimulatedDisk(interposer=door, direct_block=4096)
        try:
            dumped, committed, _, loaded, right = round_trip(disk)
        except (StoreError, OSError):
            dumped, committed, loaded, right = -1, [], -1, False
        if not door.fired[0]:
            break
        fired += 1
        assert right or loaded, (name, nth)
        if dumped == 0 and committed == [0] * 3 and name in ("failed_fsync", "failed_rename"):
            assert opened(disk.durable()).lookup(IDS) == [True] * 3, (name, nth)
    else:
        pytest.fail("the fault fires for ever")
    assert fired
