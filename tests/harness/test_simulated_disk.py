"""The simulated disk against the real file system, and what it adds: durability, space, doors."""

import errno
import os
import re
import shutil
import tempfile

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.disk_files import FileStat
from harness.errors import RankDied
from harness.interpose import Die, Interposer, Raise
from harness.plan import EVERY, Fault
from harness.simulated_disk import O_DIRECT, SimulatedDisk

O_DIRECTORY = os.O_DIRECTORY


class RealDisk:
    """The same port on the operating system's files; only that it waits for no medium.

    An fsync of a healthy disk tells nothing but whether the descriptor is good, as fstat does.
    """

    def makedirs(self, path):
        os.makedirs(path, exist_ok=True)

    def open(self, path, flags, mode=0o644):
        return os.open(path, flags, mode)

    def close(self, fd):
        os.close(fd)

    def pread(self, fd, view, offset):
        return os.preadv(fd, [view], offset)

    def pwrite(self, fd, view, offset):
        return os.pwritev(fd, [view], offset)

    def fsync(self, fd):
        os.fstat(fd)

    def fsync_dir(self, path):
        os.close(os.open(path, os.O_RDONLY | O_DIRECTORY))

    def truncate(self, fd, length):
        os.ftruncate(fd, length)

    def rename(self, old, new):
        os.replace(old, new)

    def unlink(self, path):
        os.unlink(path)

    def listdir(self, path):
        return sorted(os.listdir(path))

    def exists(self, path):
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path):
        told = os.stat(path)
        return FileStat(told.st_size, told.st_mtime, told.st_atime, os.path.isdir(path))

    def utime(self, path, when):
        os.utime(path, (when, when))


# Conformance --------------------------------------------------------------------------------------

PATHS = st.sampled_from(
    ("a", "b", "d", "d/a", "d/e", "d/e/x", "a/x", "no/x", "a/", "d/", "d/e/", "d/../b", "./a", "d//a",
     "d/.", "n" * 300)
)
FLAGS = st.sampled_from(
    (
        os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT,
        os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_CREAT | os.O_TRUNC,
        os.O_RDWR | os.O_TRUNC, os.O_RDONLY | O_DIRECTORY, os.O_RDWR | os.O_CREAT | os.O_APPEND,
    )
)
# Not -1: preadv2, which Python calls, takes it for the descriptor's own position.
OFFSETS = st.one_of(st.just(-2), st.integers(0, 40))
# Descriptors are named by how many opens ago they were made; the last is one that never was.
OPENED = st.integers(0, 3)
OPERATIONS = st.one_of(
    st.tuples(st.just("makedirs"), PATHS),
    st.tuples(st.just("open"), PATHS, FLAGS),
    st.tuples(st.just("open"), PATHS, st.just(os.O_RDWR | os.O_CREAT)),
    st.tuples(st.just("close"), OPENED),
    st.tuples(st.just("pread"), OPENED, st.integers(0, 30), OFFSETS),
    st.tuples(st.just("pwrite"), OPENED, st.binary(max_size=30), OFFSETS),
    st.tuples(st.just("fsync"), OPENED),
    st.tuples(st.just("fsync_dir"), PATHS),
    st.tuples(st.just("truncate"), OPENED, OFFSETS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("unlink"), PATHS),
    st.tuples(st.just("listdir"), PATHS),
    st.tuples(st.just("exists"), PATHS),
    st.tuples(st.just("stat"), PATHS),
    st.tuples(st.just("utime"), PATHS, st.integers(1, 2_000_000_000)),
)
BY_DESCRIPTOR = frozenset(("close", "pread", "pwrite", "fsync", "truncate"))
NO_DESCRIPTOR = 999_999


def tell(disk, root, name, args, opened):
    """What one operation gives, in a form that both disks share."""
    if name in BY_DESCRIPTOR:
        fd = opened[-1 - args[0]] if args[0] < len(opened) else NO_DESCRIPTOR
        args = (fd, *args[1:])
    else:
        paths = 2 if name == "rename" else 1
        args = (*(f"{root}/{path}" for path in args[:paths]), *args[paths:])
    held = bytearray(args[1]) if name in ("pread", "pwrite") else b""
    if name in ("pread", "pwrite"):
        args = (args[0], memoryview(held), args[2])
    try:
        result = getattr(disk, name)(*args)
    except OSError as error:
        return type(error), errno.errorcode[error.errno]
    if name == "open":
        opened.append(result)
        return "opened"
    if name == "close":
        opened.remove(args[0])
    if name == "stat":
        return result.is_dir or result.size, result.is_dir
    if name == "utime":
        told = disk.stat(args[0])
        return told.mtime, told.atime
    return result, bytes(held)


def tree(disk, path):
    """Names and contents below `path`."""
    found = {}
    for name in disk.listdir(path):
        whole = f"{path}/{name}"
        if disk.stat(whole).is_dir:
            found[name] = tree(disk, whole)
        else:
            found[name] = contents(disk, whole)
    return found


def contents(disk, path):
    fd = disk.open(path, os.O_RDONLY)
    held = bytearray(disk.stat(path).size)
    assert disk.pread(fd, memoryview(held), 0) == len(held)
    disk.close(fd)
    return bytes(held)


@settings(
    deadline=None, max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(OPERATIONS, min_size=5, max_size=40))
def test_behaves_as_the_real_file_system(tmp_path, operations):
    real, real_root, real_opened = RealDisk(), tempfile.mkdtemp(dir=tmp_path), []
    disk, root, opened = SimulatedDisk(), "/disk", []
    disk.makedirs(root)
    try:
        for name, *args in operations:
            expected = tell(real, real_root, name, tuple(args), real_opened)
            assert tell(disk, root, name, tuple(args), opened) == expected, (name, args)
        assert tree(disk, root) == tree(real, real_root)
    finally:
        for fd in real_opened:
            os.close(fd)
        shutil.rmtree(real_root)


# Descriptors and space ------------------------------------------------------------------------------


def write(disk, path, data, at=0, flags=os.O_RDWR | os.O_CREAT):
    """Write all of `data`; returns the descriptor, still open."""
    fd = disk.open(path, flags)
    assert disk.pwrite(fd, memoryview(data), at) == len(data)
    return fd


def read(disk, fd, length, at=0):
    held = bytearray(length)
    return bytes(held[: disk.pread(fd, memoryview(held), at)])


def refused(number, call, *args):
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as told:
        call(*args)
    assert told.value.errno == number


def test_a_file_without_a_name_lives_as_long_as_its_descriptor():
    disk = SimulatedDisk(capacity=10)
    old = write(disk, "/a", b"old")
    disk.unlink("/a")
    assert read(disk, old, 9) == b"old"
    assert disk.free_bytes("/") == 7
    disk.close(old)
    assert disk.free_bytes("/") == 10
    refused(errno.EBADF, disk.close, old)


def test_a_rename_over_an_open_file_leaves_it_to_its_descriptor():
    disk = SimulatedDisk(capacity=10)
    old = write(disk, "/a", b"old")
    disk.close(write(disk, "/b", b"newer"))
    disk.rename("/b", "/a")
    assert (read(disk, old, 9), contents(disk, "/a")) == (b"old", b"newer")
    disk.close(old)
    assert disk.free_bytes("/") == 5


def test_a_full_disk_takes_what_fits_and_then_nothing():
    disk = SimulatedDisk(capacity=10)
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT)
    assert disk.pwrite(fd, memoryview(b"x" * 8), 0) == 8
    assert disk.pwrite(fd, memoryview(b"y" * 8), 6) == 4
    refused(errno.ENOSPC, disk.pwrite, fd, memoryview(b"z"), 10)
    refused(errno.ENOSPC, disk.truncate, fd, 11)
    assert disk.pwrite(fd, memoryview(b"z"), 3) == 1  # what is there may be overwritten
    disk.truncate(fd, 2)
    assert (disk.free_bytes("/"), read(disk, fd, 20)) == (8, b"xx")


def aligned(length, block, shift=0):
    held = numpy.zeros(length + 2 * block, numpy.uint8)
    start = -held.ctypes.data % block + shift
    return memoryview(held[start : start + length])


def test_direct_operations_must_be_aligned():
    disk = SimulatedDisk(direct_block=512)
    fd = disk.open("/a", os.O_RDWR | os.O_CREAT | O_DIRECT)
    assert disk.pwrite(fd, aligned(1024, 512), 0) == 1024
    assert disk.pread(fd, aligned(4096, 512), 512) == 512
    refused(errno.EINVAL, disk.pwrite, fd, aligned(1000, 512), 0)
    refused(errno.EINVAL, disk.pwrite, fd, aligned(512, 512), 8)
    refused(errno.EINVAL, disk.pread, fd, aligned(512, 512, shift=8), 0)
    buffered = disk.open("/a", os.O_RDONLY)
    assert disk.pread(buffered, aligned(7, 512, shift=1), 3) == 7
    refused(errno.EINVAL, SimulatedDisk(direct_block=0).open, "/", O_DIRECT)


def test_times_follow_the_clock():
    now = [100.0]
    disk = SimulatedDisk(clock=lambda: now[0])
    fd = write(disk, "/a", b"x")
    now[0] = 200.0
    disk.pwrite(fd, memoryview(b"y"), 0)
    now[0] = 300.0
    read(disk, fd, 1)
    assert disk.stat("/a") == FileStat(1, 200.0, 300.0, is_dir=False)
    now[0] = 400.0
    read(disk, fd, 1)
    assert disk.stat("/a").atime == 300.0  # read since it was written: not noted again that day


def test_processes_share_files_and_not_descriptors():
    disk = SimulatedDisk()
    other = disk.mounted(rank=1, size=2)
    fd = write(disk, "/a", b"shared")
    refused(errno.EBADF, other.close, fd)
    assert contents(other, "/a") == b"shared"
    disk.close_all()
    refused(errno.EBADF, disk.close, fd)
    assert [entry.rank for entry in disk.log] == [0, 0, 0]


# Durability ---------------------------------------------------------------------------------------


def names(disk, path="/"):
    return tree(disk, path) if path == "/" else disk.listdir(path)


def test_what_nobody_synchronised_is_gone():
    disk = SimulatedDisk()
    fd = write(disk, "/a", b"data")
    assert names(disk.durable()) == {}
    disk.fsync(fd)
    assert names(disk.durable()) == {}  # the data is there, its name is not
    disk.fsync_dir("/")
    assert names(disk.durable()) == {"a": b"data"}
    disk.pwrite(fd, memoryview(b"more"), 4)
    disk.truncate(fd, 6)
    assert names(disk.durable()) == {"a": b"data"}
    disk.fsync(fd)
    assert names(disk.durable()) == {"a": b"datamo"}


def test_a_name_may_be_durable_before_its_contents():
    disk = SimulatedDisk()
    write(disk, "/a", b"data")
    disk.fsync_dir("/")
    assert names(disk.durable()) == {"a": b""}


def test_a_rename_is_durable_folder_by_folder():
    disk = SimulatedDisk()
    disk.makedirs("/d/e")
    disk.fsync_dir("/")
    disk.fsync_dir("/d")
    disk.fsync(write(disk, "/d/a", b"data"))
    disk.fsync_dir("/d")
    disk.rename("/d/a", "/d/e/b")
    assert names(disk.durable()) == {"d": {"a": b"data", "e": {}}}
    disk.fsync_dir("/d/e")
    assert names(disk.durable()) == {"d": {"a": b"data", "e": {"b": b"data"}}}
    disk.fsync_dir("/d")
    after = disk.durable()
    assert names(after) == {"d": {"e": {"b": b"data"}}}
    assert names(after.durable()) == names(after)


def test_a_folder_is_durable_only_if_those_above_it_are():
    disk = SimulatedDisk()
    disk.makedirs("/d/e")
    disk.fsync_dir("/d")
    assert names(disk.durable()) == {}
    disk.fsync_dir("/")
    assert names(disk.durable()) == {"d": {"e": {}}}


def test_the_durable_disk_is_a_copy_with_the_same_space():
    disk = SimulatedDisk(capacity=10)
    disk.fsync(write(disk, "/a", b"data"))
    disk.fsync_dir("/")
    disk.unlink("/a")
    after = disk.durable()
    assert (after.free_bytes("/"), after.log) == (6, [])
    write(after, "/a", b"DATA")
    assert contents(disk.durable(), "/a") == b"data"
    after.unlink("/a")
    after.close_all()
    assert after.free_bytes("/") == 10


def test_the_log_says_what_happened_in_order():
    disk = SimulatedDisk()
    disk.makedirs("/d")
    fd = write(disk, "/d/a", b"data", 3)
    disk.truncate(fd, 5)
    disk.fsync(fd)
    disk.close(fd)
    disk.rename("/d/a", "/d/b")
    disk.fsync_dir("/d")
    disk.unlink("/d/b")
    refused(errno.ENOENT, disk.unlink, "/d/b")
    assert [(e.kind, e.path, e.offset, e.length) for e in disk.log] == [
        ("mkdir", "/d", 0, 0),
        ("create", "/d/a", 0, 0),
        ("write", "/d/a", 3, 4),
        ("truncate", "/d/a", 0, 5),
        ("fsync", "/d/a", 0, 0),
        ("close", "/d/a", 0, 0),
        ("rename", "/d/a", 0, 0),
        ("fsync_dir", "/d", 0, 0),
        ("unlink", "/d/b", 0, 0),
    ]
    assert (disk.log[2].data, disk.log[6].target) == (b"data", "/d/b")
    assert len({e.inode for e in disk.log[1:7]}) == 1


# Doors --------------------------------------------------------------------------------------------


class On(Fault, frozen=True):
    """Answers every operation of a kind as ANSWERS says."""

    kind: str = "disk_pwrite"
    answer: str = "eio"

    def matches(self, op):
        return op.kind == self.kind

    def rewrite(self, op):
        return ANSWERS[self.answer](op)


ANSWERS = {
    "eio": lambda op: Raise(OSError(errno.EIO, os.strerror(errno.EIO))),
    "die": lambda op: Die(),
    "slow": lambda op: op.with_args(seconds=2.5),
}


def faulty(*faults, **more):
    door = Interposer(faults, lambda index, op: None)
    return SimulatedDisk(interposer=door, **more), door


def test_every_operation_is_offered_once_and_a_point_before_that():
    reached = []
    seen = []

    class Seeing(Fault, frozen=True):
        def matches(self, op):
            seen.append((op.kind, op.rank, op.size, op.lane))
            return False

    disk, _ = faulty(
        Seeing(rank=EVERY), rank=1, size=3, lane=lambda: 7,
        point=lambda kind, path: reached.append((kind, path)),
    )
    disk.makedirs("/d")
    fd = write(disk, "/d/a", b"x")
    read(disk, fd, 1)
    disk.fsync(fd)
    disk.truncate(fd, 0)
    disk.close(fd)
    disk.fsync_dir("/d")
    disk.rename("/d/a", "/d/b")
    disk.exists("/d/b")
    disk.stat("/d/b")
    disk.utime("/d/b", 1)
    disk.unlink("/d/b")
    disk.listdir("/d")
    disk.free_bytes("/d")
    kinds = [kind for kind, _ in reached]
    assert kinds == [
        "disk_makedirs", "disk_open", "disk_pwrite", "disk_pread", "disk_fsync", "disk_truncate",
        "disk_close", "disk_fsync_dir", "disk_rename", "disk_exists", "disk_stat", "disk_utime",
        "disk_unlink", "disk_listdir", "disk_free_bytes",
    ]
    assert seen == [(kind, 1, 3, 7) for kind in kinds]
    assert [path for _, path in reached][:7] == ["/d", *["/d/a"] * 6]


def test_a_refused_close_closes_all_the_same():
    disk, _ = faulty(On(kind="disk_close"))
    fd = write(disk, "/a", b"x")
    refused(errno.EIO, disk.close, fd)
    refused(errno.EBADF, read, disk, fd, 1)


def test_a_dead_process_does_nothing_more():
    told = []
    disk, _ = faulty(On(answer="die"), on_death=lambda: told.append("dead"))
    other = disk.mounted(rank=1, size=2)
    with pytest.raises(RankDied):
        write(disk, "/a", b"x")
    with pytest.raises(RankDied):
        disk.unlink("/a")
    assert told == ["dead"]
    assert contents(other, "/a") == b""


def test_a_slow_operation_spends_the_sleepers_time_or_the_disks_own():
    spent = []
    disk, _ = faulty(On(answer="slow"), sleep=spent.append)
    write(disk, "/a", b"x")
    assert (spent, disk.stat("/a").mtime) == ([2.5], 0.0)
    disk, _ = faulty(On(answer="slow"))
    write(disk, "/a", b"x")
    assert disk.stat("/a").mtime == 2.5
