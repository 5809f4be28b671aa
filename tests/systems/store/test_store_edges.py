"""Waiting, cancelling and closing while things run; own shards; failed folders' fsync; residue."""

import errno
import gc
import os
import threading
import weakref

import pytest
import torch

from systems.store.errors import (
    CANCELLED,
    NOT_FOUND,
    OK,
    OS_ERROR,
    RETRY,
    TIMEOUT,
    AlreadyWaited,
    BadParameter,
    StoreClosed,
)
from systems.store.front import TOLD_MAX
from systems.store.real import RealDisk

WAIT = 60


class Gates(RealDisk):
    """Once closed, moving data waits at the gate."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Semaphore(0)

    def shut(self):
        self.gate.clear()

    def _pass(self, offset):
        if offset and not self.gate.is_set():
            self.inside.release()
            assert self.gate.wait(WAIT)

    def pread(self, fd, view, offset):
        self._pass(offset)
        return super().pread(fd, view, offset)

    def pwrite(self, fd, view, offset):
        self._pass(offset)
        return super().pwrite(fd, view, offset)


def put(store, ids, tensor, offset=0):
    assert store.wait(store.dump(ids, offset, tensor)) == OK
    assert store.commit(ids) == [OK] * len(ids)


def residue(folder):
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".tmp")]


@pytest.fixture
def gates():
    disk = Gates()
    yield disk
    disk.gate.set()


def test_a_cancelled_load_is_whole_or_cancelled_and_lets_go_when_done(create, ids, data, gates):
    store = create(disk=gates, workers=1)
    source = data(3, 500)
    put(store, ids(3), source)
    reader = create(disk=gates, workers=1)
    targets = [torch.zeros(500, dtype=torch.float16) for _ in range(3)]
    gates.shut()
    task = reader.load(ids(3), 0, targets)
    gates.inside.acquire()
    assert reader.wait(task, timeout_ms=1) == TIMEOUT
    assert reader.cancel(task) == 2
    assert reader.check(task) == (CANCELLED, False)  # the one that runs may still write
    gates.gate.set()
    assert reader.wait(task) == CANCELLED
    assert task.statuses == [OK, CANCELLED, CANCELLED]
    assert torch.equal(targets[0], source[0])
    assert not any(target.any() for target in targets[1:])


def test_a_running_load_keeps_its_target_alive_and_lets_it_go(create, ids, data, gates):
    store = create(disk=gates)
    put(store, ids(1), data(1, 500))
    reader = create(disk=gates)
    target = torch.zeros(1, 500, dtype=torch.float16)
    memory = weakref.ref(target.untyped_storage())
    gates.shut()
    task = reader.load(ids(1), 0, target)
    gates.inside.acquire()
    del target
    gc.collect()
    assert memory() is not None
    gates.gate.set()
    assert reader.wait(task) == OK
    reader.close()  # the worker has come back from the job
    gc.collect()
    assert memory() is None


def test_of_two_threads_that_wait_one_gets_the_status(create, ids, data, gates):
    store = create(disk=gates)
    gates.shut()
    task = store.dump(ids(1), 0, data(1, 500))
    gates.inside.acquire()
    told = []
    ready = threading.Semaphore(0)

    def wait():
        ready.release()
        try:
            told.append(store.wait(task))
        except AlreadyWaited:
            told.append("already")

    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for one in waiters:
        one.start()
        ready.acquire()
    assert store.wait(task, timeout_ms=1) == TIMEOUT  # and takes nothing from the others
    gates.gate.set()
    for one in waiters:
        one.join(WAIT)
    assert sorted(map(str, told)) == ["0", "already", "already"]


def test_commit_while_dumping_changes_nothing_and_works_later(create, ids, data, gates):
    store = create(disk=gates, workers=1, shards=2)
    assert store.wait(store.dump(ids(1), 0, data(1, 500))) == OK
    gates.shut()
    task = store.dump(ids(1), 1, data(1, 500))
    gates.inside.acquire()
    assert store.commit(ids(1)) == [RETRY]
    assert store.lookup(ids(1)) == [False]
    gates.gate.set()
    assert store.wait(task) == OK
    assert store.commit(ids(1)) == [OK]
    assert store.lookup(ids(1)) == [True]


def test_close_waits_for_what_runs_and_leaves_no_residue(create, ids, data, gates, tmp_path):
    store = create(disk=gates, workers=1)
    gates.shut()
    task = store.dump(ids(3), 0, data(3, 500))
    gates.inside.acquire()
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store._closed:
        os.sched_yield()
    for call in (lambda: store.lookup(ids(1)), lambda: store.dump(ids(1), 0, data(1, 5))):
        with pytest.raises(StoreClosed):
            call()
    gates.gate.set()
    closing.join(WAIT)
    assert store.wait(task) == CANCELLED
    assert task.statuses == [OK, CANCELLED, CANCELLED]
    assert residue(tmp_path) == []


def test_close_does_not_wait_for_ever_and_the_late_dump_removes_its_file(
    create, ids, data, gates, tmp_path
):
    store = create(disk=gates, workers=1, timeout_ms=1)
    gates.shut()
    task = store.dump(ids(1), 0, data(1, 500))
    gates.inside.acquire()
    store.close()
    assert len(residue(tmp_path)) == 1
    gates.gate.set()
    assert store.wait(task, timeout_ms=60_000) == CANCELLED
    assert residue(tmp_path) == []


def test_a_dump_that_meets_a_closing_store_is_refused_as_such(create, ids, data):
    store = create()
    held = store._register

    def late(task):
        held(task)
        store.close()

    store._register = late
    with pytest.raises(StoreClosed):
        store.dump(ids(1), 0, data(1, 500))


def test_a_failed_dump_leaves_no_file_also_where_removing_fails_at_first(
    create, failing, at_once, ids, data, tmp_path
):
    disk = failing(only=("fsync", "unlink"))
    store = create(disk=disk, executor=at_once())
    disk.count, disk.at, disk.how = 0, 1, "crash"
    assert store.wait(store.dump(ids(1), 0, data(1, 500))) == OS_ERROR
    assert len(residue(tmp_path)) == 1
    disk.at = 0
    store.close()
    assert residue(tmp_path) == []


def test_an_own_shard_is_loaded_after_its_commit_as_before(create, ids, data):
    ranks = [create(shards=2) for _ in range(2)]
    source = data(2, 50)
    for rank, store in enumerate(ranks):
        assert store.wait(store.dump(ids(1), rank, source[rank])) == OK

    def loads(store, shard):
        target = torch.zeros_like(source[shard])
        code = store.wait(store.load(ids(1), shard, target))
        assert code != OK or torch.equal(target, source[shard])
        return code

    for _ in range(2):  # before the commit of the first, and after
        assert [loads(ranks[0], shard) for shard in (0, 1)] == [OK, NOT_FOUND]
        assert [loads(ranks[1], shard) for shard in (0, 1)] == [NOT_FOUND, OK]
        assert ranks[0].lookup(ids(1)) == [False]
        assert ranks[0].commit(ids(1)) == [OK]  # the second time: once more
    assert ranks[1].commit(ids(1)) == [OK]
    for store in (*ranks, create(shards=2)):
        assert store.lookup(ids(1)) == [True]
        assert [loads(store, shard) for shard in (0, 1)] == [OK, OK]


def test_an_own_shard_is_on_the_disk_after_its_commit(create, ids, data):
    """Not only in a cache: a buffer for one block only."""
    store = create(shards=2, cache_bytes=4096)
    source = data(3, 50)
    for index in range(3):
        put(store, [ids(3)[index]], source[index : index + 1])
    target = torch.zeros_like(source)
    assert store.wait(store.load(ids(3), 0, target)) == OK
    assert torch.equal(target, source)
    other = create(shards=2)
    assert other.wait(other.load(ids(3), 0, target)) == NOT_FOUND


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_fsync_of_a_folder_is_told_and_committing_again_asks_again(
    create, failing, at_once, ids, data, shards, nth
):
    disk = failing(only=("fsync_dir",))
    store = create(disk=disk, executor=at_once(), durability="fsync", shards=shards)
    source = data(1, 50)
    assert store.wait(store.dump(ids(1), 0, source)) == OK
    disk.count, disk.at, disk.how = 0, nth, "crash"
    for _ in range(2):
        assert store.commit(ids(1)) == [OS_ERROR]
    assert store.lookup(ids(1)) == create(shards=shards).lookup(ids(1)) == [shards == 1]
    disk.at = 0
    disk.log.clear()
    assert store.commit(ids(1)) == [OK]
    assert "fsync_dir" in disk.log
    target = torch.zeros_like(source)
    assert store.wait(store.load(ids(1), 0, target)) == OK
    assert torch.equal(target, source)


def test_prefetch_is_not_kept_when_done_and_its_shard_is_checked(create, ids, data, at_once):
    store = create(executor=at_once())
    put(store, ids(1), data(1, 50))
    store.prefetch(ids(3))
    assert store._running == {}
    with pytest.raises(BadParameter, match="offset"):
        store.prefetch(ids(1), 1)


def test_a_very_long_list_of_ids_is_looked_up(create, ids, data):
    store = create()
    put(store, ids(2), data(2, 50))
    many = ids(2) * 20_000
    assert store.lookup(many) == [True] * len(many)
    assert store.lookup_on_prefix([*many, ids(3)[2]]) == len(many) - 1


def test_a_dump_that_is_replaced_while_it_is_committed_leaves_no_file(
    create, ids, data, at_once, tmp_path
):
    disk = RealDisk()
    store = create(disk=disk, executor=at_once())
    assert store.wait(store.dump(ids(1), 0, data(1, 50))) == OK

    def rename(old, new):
        del disk.rename
        assert store.wait(store.dump(ids(1), 0, data(1, 50, seed=2))) == OK
        raise OSError(errno.EIO, "no")

    disk.rename = rename
    assert store.commit(ids(1)) == [OS_ERROR]
    assert len(residue(tmp_path)) == 1  # the second dump's
    assert store.commit(ids(1)) == [OK]
    assert residue(tmp_path) == []


def test_a_block_dropped_while_its_dump_ends_is_not_cached(create, ids, data, at_once):
    """Between the last write and the caching of it."""
    store = create(executor=at_once())
    stage = getattr(store._top, "_lower", store._top)
    real = stage.write

    def write(dump, piece):
        real(dump, piece)
        assert store.commit(ids(1), [False]) == [OK]

    stage.write = write
    store.dump(ids(1), 0, data(1, 50))
    target = torch.zeros(1, 50, dtype=torch.float16)
    assert store.wait(store.load(ids(1), 0, target)) == NOT_FOUND


@pytest.mark.parametrize("direct", [False, True])
def test_a_disk_that_takes_no_more_bytes_fails_the_dump(create, ids, data, at_once, tmp_path, direct):
    """It says so by the number of bytes alone."""
    disk = RealDisk()
    real = disk.pwrite
    store = create(disk=disk, executor=at_once(), io_direct=direct)
    left = [4096 + 8192]

    def pwrite(fd, view, offset):
        count = min(left[0], len(view))
        left[0] -= count
        return real(fd, view[:count], offset) if count else 0

    disk.pwrite = pwrite
    task = store.dump(ids(1), 0, data(1, 20_000))
    assert store.wait(task) == OS_ERROR
    assert "write stopped after" in store.error(task).text
    assert store.commit(ids(1)) == [NOT_FOUND]
    assert store.lookup(ids(1)) == [False]
    assert residue(tmp_path) == []


def test_a_file_that_ends_early_for_one_read_fails_that_load_only(create, ids, data, at_once):
    source = data(1, 20_000)
    writer = create()
    put(writer, ids(1), source)
    disk = RealDisk()
    real = disk.pread
    store = create(disk=disk, executor=at_once())
    target = torch.zeros_like(source)
    disk.pread = lambda fd, view, offset: real(fd, view[:8192], offset) if offset < 8192 else 0
    task = store.load(ids(1), 0, target)
    assert store.wait(task) < 0
    assert "cut short" in store.error(task).text
    del disk.pread
    assert store.wait(store.load(ids(1), 0, target)) == OK
    assert torch.equal(target, source)


def test_what_an_earlier_block_left_in_a_bounce_buffer_reaches_no_disk(create, ids, at_once):
    disk = RealDisk()
    real = disk.pwrite
    written = []

    def pwrite(fd, view, offset):
        written.append((offset, bytes(view)))
        return real(fd, view, offset)

    disk.pwrite = pwrite
    store = create(disk=disk, executor=at_once(), io_direct=True)
    for block, (value, length) in zip(ids(2), ((255, 8191), (1, 4097)), strict=True):
        put(store, [block], torch.full((length,), value, dtype=torch.uint8))
    [last] = [data for offset, data in written[-2:] if offset >= 4096 and len(data) > 1][-1:]
    assert last.rstrip(b"\0").strip(b"\1") == b""
    assert len(last) % 4096 == 0


def test_dropping_a_block_drops_every_shard_of_it(create, ids, data, tmp_path):
    store = create(shards=3)
    for shard in range(3):
        assert store.wait(store.dump(ids(1), shard, data(1, 50))) == OK
    assert store.commit(ids(1), [False]) == [OK]
    assert residue(tmp_path) == []
    target = torch.zeros(1, 50, dtype=torch.float16)
    assert [store.wait(store.load(ids(1), shard, target)) for shard in range(3)] == [NOT_FOUND] * 3
    assert store.commit(ids(1)) == [NOT_FOUND]


def test_a_batch_that_fails_as_a_whole_is_told_in_a_few_lines(create, ids, caplog, at_once):
    store = create(executor=at_once())
    assert store.wait(store.load(ids(1000), 0, torch.zeros(1000, 1))) == NOT_FOUND
    lines = [line for line in caplog.messages if "load: task_id=" in line]
    assert len(lines) == TOLD_MAX + 1
    assert lines[-1].endswith(f"{1000 - TOLD_MAX} more blocks failed")
    assert store.wait(store.load(ids(TOLD_MAX), 0, torch.zeros(TOLD_MAX, 1))) == NOT_FOUND
    assert len([line for line in caplog.messages if "load: task_id=" in line]) == 2 * TOLD_MAX + 1
