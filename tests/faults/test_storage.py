"""Every fault of the disk fires in a program that has one, and changes what comes of it."""

import errno
import os
from dataclasses import dataclass

import pytest
import torch

import faults.storage
from faults.environment import Crash
from faults.storage import (
    BitFlip,
    Evicted,
    FailedFsync,
    FailedRename,
    FolderGone,
    IoError,
    LostWrite,
    MisdirectedWrite,
    ShortRead,
    ShortWrite,
    SlowIo,
    StaleRead,
    SwappedFiles,
    Truncation,
)
from harness import (
    EVERY,
    Fault,
    Operation,
    Plan,
    Scenario,
    SimulatedDisk,
    Verdict,
    rank_disk,
    registry,
    run,
    scenario,
)
from harness.hunt import Order, hunt
from harness.interpose import Interposer
from harness.simulated_disk import O_DIRECT
from harness.strategy import all_fault_counts, environment_faults, fault_counts, fault_values

SIZE = 8192
OLD, NEW = 1, 2


def content(value):
    return bytes([value]) * SIZE


def put(disk, path, value):
    """Write a whole file and make it durable; trusts every call, as no store should."""
    fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    disk.pwrite(fd, memoryview(content(value)), 0)
    disk.fsync(fd)
    disk.close(fd)


def get(disk, path):
    """What one read of a whole file brings; zeros where it brings less."""
    held = bytearray(SIZE)
    fd = disk.open(path, os.O_RDONLY)
    disk.pread(fd, memoryview(held), 0)
    disk.close(fd)
    return torch.frombuffer(held, dtype=torch.uint8).float()


def replaces(rank, disk):
    """Rank 0 replaces a file; the others wait, and then all read it."""
    mine = rank_disk(rank, disk)
    if rank.index == 0:
        put(mine, "/s/new.kv", NEW)
        mine.rename("/s/new.kv", "/s/a.kv")
        mine.fsync_dir("/s")
    rank.sync()
    return get(mine, "/s/a.kv")


def host_of(program):
    def host(world, params):
        disk = SimulatedDisk()
        disk.makedirs("/s")
        put(disk, "/s/a.kv", OLD)
        put(disk, "/s/z.kv", OLD)
        disk.fsync_dir("/")
        disk.fsync_dir("/s")
        for device in range(world.size):
            world.dispatch(program, disk, device=device)

    return host


def reference(params, size):
    return {"result": [torch.full((SIZE,), float(NEW))] * size}


replacing = Scenario(name="replacing", host=host_of(replaces), reference=reference)


@scenario(reference=lambda size: [None] * size)
def diskless(rank):
    """No disk at all."""
    rank.sync()


@dataclass(frozen=True)
class Row:
    """A fault in `replacing`, and the finding that the trusting program earns (None: it is right)."""

    fault: Fault
    expects: str | None


# Rank 0 opens, writes, synchronises, closes, renames, synchronises the folder, opens, reads, closes.
ROWS = [
    Row(IoError(rank=0, nth=4), "exceptions/os_error"),
    Row(IoError(rank=1, nth=1, error="ESTALE"), "exceptions/os_error"),
    Row(IoError(rank=0, nth=1, error="ENOSPC"), "exceptions/os_error"),
    Row(ShortRead(rank=1), "integrity/wrong_value"),
    Row(ShortWrite(rank=0), "integrity/wrong_value"),
    Row(MisdirectedWrite(rank=0), "integrity/wrong_value"),
    Row(BitFlip(rank=1, bit=77), "integrity/wrong_value"),
    Row(BitFlip(rank=0, bit=SIZE * 8 + 1), "integrity/wrong_value"),
    Row(Truncation(rank=1), "integrity/wrong_value"),
    Row(FailedFsync(rank=0), "exceptions/os_error"),
    Row(FailedFsync(rank=0, nth=1, error="ENOSPC"), "exceptions/os_error"),
    Row(FailedRename(rank=0, error="EACCES"), "exceptions/permission_error"),
    Row(LostWrite(rank=0), "integrity/wrong_value"),
    Row(StaleRead(rank=1), "integrity/wrong_value"),
    Row(SwappedFiles(rank=1), "integrity/wrong_value"),
    Row(Evicted(rank=1), "exceptions/file_not_found_error"),
    Row(FolderGone(rank=0), "exceptions/file_not_found_error"),
    Row(FolderGone(rank=0, nth=1), "exceptions/file_not_found_error"),
    Row(SlowIo(rank=0, nth=3), None),
]


def plan_of(*planted, program=replacing):
    return Plan(scenario=program.name, params=program.params(), ranks=2, faults=planted)


def title(row):
    return f"{row.fault.tag()}-{row.fault.nth}"


def test_every_storage_fault_has_a_row():
    registered = {
        name for name, fault in registry.faults().items() if fault.__module__ == "faults.storage"
    }
    # A clock is no disk: tests/harness/fabric/test_rank_workers.py shows it jump.
    assert {row.fault.tag() for row in ROWS} | {"clock_jump"} == registered
    assert len(registered) == len(faults.storage.__all__)
    assert all(registry.faults()[name].family == "environment" for name in registered)


def test_the_program_is_right_without_faults():
    outcome = run(plan_of(), scenario=replacing)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    kinds = [event.kind for event in outcome.run.events if event.owner == 0]
    assert kinds[:6] == [
        "disk_open", "disk_pwrite", "disk_fsync", "disk_close", "disk_rename", "disk_fsync_dir",
    ]


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_fires_once_and_is_recorded(row):
    record = run(plan_of(row.fault), scenario=replacing).run
    assert record.fired == [1]
    assert [event.kind for event in record.events].count("fault") == 1


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_changes_the_outcome(row):
    outcome = run(plan_of(row.fault), scenario=replacing)
    names = [finding.name for finding in outcome.findings]
    if row.expects is None:
        assert (names, outcome.verdict) == ([], Verdict.PASS)
        assert outcome.run.identity() != run(plan_of(), scenario=replacing).run.identity()
    else:
        assert row.expects in names


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_the_identity_of_a_faulty_run_repeats(row):
    first, second = (run(plan_of(row.fault), scenario=replacing) for _ in range(2))
    assert first.run.identity() == second.run.identity()
    assert [f.identity for f in first.findings] == [f.identity for f in second.findings]


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_does_not_fire_where_there_is_no_disk(row):
    outcome = run(plan_of(row.fault, program=diskless), scenario=diskless)
    assert outcome.run.fired == [0]
    assert outcome.verdict is Verdict.UNKNOWN


def test_a_crash_at_a_disk_operation_ends_the_rank_there():
    """Rank 0's operations are nine of the disk and a sync: it dies before each of them."""
    for nth in range(10):
        record = run(plan_of(Crash(rank=0, nth=nth)), scenario=replacing).run
        assert record.fired == [1]
        assert record.dead == [0]
        assert [event.kind for event in record.events].count("crash") == 1
        assert record.failures == []


# Directly on a disk ---------------------------------------------------------------------------------


def disk_with(*planted):
    door = Interposer(planted, lambda index, op: None)
    disk = SimulatedDisk(interposer=door)
    return disk, door


def test_a_failed_fsync_is_not_made_good_by_the_next():
    disk, door = disk_with(FailedFsync())
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, memoryview(b"lost"), 0)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fsync(fd)
    disk.fsync(fd)
    disk.fsync_dir("/")
    assert door.fired == [1]
    assert disk.stat("/a").size == 4
    assert disk.durable().stat("/a").size == 0


def test_a_stale_read_shows_what_the_last_write_or_rename_replaced():
    disk, door = disk_with(StaleRead(nth=EVERY))
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT)
    held = bytearray(4)

    def seen():
        held[:] = b"...."
        return bytes(held[: disk.pread(fd, memoryview(held), 0)])

    disk.pwrite(fd, memoryview(b"aaaa"), 0)
    assert seen() == b""
    disk.pwrite(fd, memoryview(b"bb"), 1)
    assert seen() == b"aaaa"
    disk.pwrite(fd, memoryview(b"bb"), 1)  # changes nothing, and is the last change
    assert seen() == b"abba"
    disk.truncate(fd, 3)
    assert seen() == b"abba"
    other = disk.open("/b", os.O_RDWR | os.O_CREAT)
    disk.pwrite(other, memoryview(b"cc"), 0)
    disk.rename("/b", "/a")
    fd = disk.open("/a", os.O_RDONLY)
    assert seen() == b"abb"
    assert door.fired == [4]


def test_files_are_swapped_on_the_medium_and_only_with_their_like():
    disk, door = disk_with(SwappedFiles(nth=EVERY))
    for name, data in (("/a.kv", b"aa"), ("/b.kv", b"b"), ("/c.tmp", b"c")):
        fd = disk.open(name, os.O_RDWR | os.O_CREAT)
        disk.pwrite(fd, memoryview(data), 0)
        disk.fsync(fd)
    disk.fsync_dir("/")
    disk.open("/c.tmp", os.O_RDONLY)
    assert door.fired == [0]
    disk.open("/a.kv", os.O_RDONLY)
    assert door.fired == [1]
    assert [disk.stat(name).size for name in ("/a.kv", "/b.kv", "/c.tmp")] == [1, 2, 1]
    assert disk.durable().stat("/a.kv").size == 1
    assert {entry.kind for entry in disk.log[-3:]} == {"damage"} | {disk.log[-3].kind}


def test_a_folder_goes_with_all_that_is_in_it():
    disk, door = disk_with(FolderGone(nth=1))
    disk.makedirs("/s/below")
    disk.open("/s/below/a", os.O_RDWR | os.O_CREAT)
    disk.makedirs("/s/t")
    with pytest.raises(FileNotFoundError):
        disk.open("/s/b", os.O_RDWR | os.O_CREAT)
    assert door.fired == [1]
    assert disk.listdir("/") == []
    with pytest.raises(FileNotFoundError):
        disk.stat("/s/below/a")


def test_a_damaged_file_is_damaged_on_the_medium():
    disk, door = disk_with(Truncation())
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, memoryview(b"data"), 0)
    disk.fsync(fd)
    disk.fsync_dir("/")
    disk.pwrite(fd, memoryview(b"more"), 4)
    disk.open("/a", os.O_RDONLY)
    assert door.fired == [1]
    assert disk.stat("/a").size == 4
    disk.fsync(fd)
    assert disk.durable().stat("/a").size == 4


def test_short_and_flipped_keep_to_what_is_moved():
    disk, _ = disk_with(ShortWrite(), BitFlip(nth=1, bit=9))
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT)
    assert disk.pwrite(fd, memoryview(b"abcde"), 0) == 2
    held = bytearray(3)
    assert disk.pread(fd, memoryview(held), 0) == 2
    assert held == b"a" + bytes([ord("b") ^ 2]) + b"\0"


def test_direct_operations_are_short_by_whole_blocks():
    door = Interposer((ShortWrite(nth=EVERY),), lambda index, op: None)
    disk = SimulatedDisk(interposer=door, direct_block=512)
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT | O_DIRECT)
    held = torch.zeros(4096, dtype=torch.uint8).numpy()
    start = -held.ctypes.data % 512
    assert disk.pwrite(fd, memoryview(held[start : start + 1536]), 0) == 512
    assert disk.pwrite(fd, memoryview(held[start : start + 512]), 0) == 512
    assert door.fired == [1]


@pytest.mark.parametrize(
    ("error", "kind", "flags", "given"),
    [
        ("ENOSPC", "disk_pread", 0, errno.EIO),
        ("ENOSPC", "disk_open", os.O_RDONLY, errno.EIO),
        ("ENOSPC", "disk_open", os.O_RDWR | os.O_CREAT, errno.ENOSPC),
        ("EROFS", "disk_open", os.O_RDONLY, errno.EIO),
        ("EROFS", "disk_open", os.O_RDWR, errno.EROFS),
        ("EROFS", "disk_pwrite", 0, errno.EROFS),
        ("EACCES", "disk_pwrite", 0, errno.EIO),
        ("EACCES", "disk_listdir", 0, errno.EACCES),
        ("EINTR", "disk_pread", 0, errno.EINTR),
        ("EINTR", "disk_unlink", 0, errno.EIO),
        ("ESTALE", "disk_stat", 0, errno.ESTALE),
        ("EACCES", "disk_exists", 0, errno.EACCES),
        ("EIO", "disk_free_bytes", 0, errno.EIO),
    ],
)
def test_an_error_is_one_that_the_operation_can_give(error, kind, flags, given):
    op = Operation(kind, 0, 1, {"flags": flags})
    assert IoError(error=error).matches(op)
    assert IoError(error=error).rewrite(op).error.errno == given


# In hunts -------------------------------------------------------------------------------------------


def test_one_run_counts_all_kinds():
    kinds = tuple(environment_faults().values())
    together = all_fault_counts(plan_of(), replacing, kinds)
    assert together == {kind: fault_counts(plan_of(), replacing, kind) for kind in kinds}
    assert together[FailedFsync] == [2, 0]
    assert together[StaleRead] == [1, 1]


def test_nothing_is_placed_where_there_is_no_disk():
    plan = plan_of(program=diskless)
    for kind in environment_faults().values():
        if kind is not Crash:
            assert fault_values(plan, diskless, kind) is None


def test_a_bare_hunt_of_a_program_that_trusts_its_disk_finds_that():
    found = hunt(Order(replacing, 1, plans_max=200))
    assert found.finding is not None
    assert type(found.outcome.plan.faults[0]).__module__ == "faults.storage"
