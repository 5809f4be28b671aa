"""What is visible to whom, and when; shards, restart, several stores on one folder, bad calls, tasks."""

import os
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from systems.store.errors import (
    BAD_PARAMETER,
    CANCELLED,
    NOT_FOUND,
    OK,
    RETRY,
    TIMEOUT,
    AlignmentError,
    AlreadyWaited,
    BadParameter,
    StoreClosed,
)
from systems.store.real import RealDisk


def files(folder, end=""):
    return sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(end)
    )


def put(store, ids, tensor, *, commit=True, offset=0):
    assert store.wait(store.dump(ids, offset, tensor)) == OK
    if commit:
        assert store.commit(ids, [True] * len(ids)) == [OK] * len(ids)


def given_up(tensor):
    """As sharded training frees a parameter: the shape stays, the memory is gone."""
    tensor.untyped_storage().resize_(0)
    return tensor


def fake(*shape):
    with FakeTensorMode():
        return torch.zeros(*shape)


def got(store, ids, like, offset=0):
    target = torch.zeros_like(like)
    task = store.load(ids, offset, target)
    return store.wait(task), target


def test_before_commit_the_dumper_loads_and_everybody_else_misses(create, ids, data):
    mine, other = create(), create()
    source = data(2, 4)
    put(mine, ids(2), source, commit=False)
    status, target = got(mine, ids(2), source)
    assert status == OK
    assert torch.equal(target, source)
    assert got(other, ids(2), source)[0] == NOT_FOUND
    assert mine.lookup(ids(2)) == other.lookup(ids(2)) == [False, False]
    mine.commit(ids(2), [True, False])
    assert mine.lookup(ids(2)) == other.lookup(ids(2)) == [True, False]
    assert got(mine, ids(2)[1:], source[1:])[0] == NOT_FOUND
    status, target = got(other, ids(1), source[:1])
    assert status == OK
    assert torch.equal(target, source[:1])


def test_lookup_goes_on_after_a_miss_and_the_prefix_stops(create, ids, data):
    store = create()
    five = ids(5)
    put(store, [five[0], five[1], five[3]], data(3, 2))
    assert store.lookup(five) == [True, True, False, True, False]
    assert store.lookup_on_prefix(five) == 1
    assert store.lookup_on_prefix(five[2:]) == -1
    assert store.lookup_on_prefix([]) == -1
    assert store.lookup([]) == []
    assert store.lookup([five[0], five[2], five[0]]) == [True, False, True]


def test_a_restart_keeps_what_was_committed_and_nothing_else(create, ids, data, tmp_path):
    store = create()
    source = data(4, 8)
    put(store, ids(2), source[:2])
    put(store, ids(4)[2:], source[2:], commit=False)
    store.close()
    assert files(tmp_path, ".tmp") == []
    again = create()
    assert again.lookup(ids(4)) == [True, True, False, False]
    assert torch.equal(got(again, ids(2), source[:2])[1], source[:2])


def test_a_crash_leaves_residue_that_is_reclaimed_by_age(create, ids, data, tmp_path):
    store = create(writer="crashed")
    put(store, ids(1), data(1, 8), commit=False)
    [residue] = files(tmp_path, ".tmp")
    create()
    assert files(tmp_path, ".tmp") == [residue]
    os.utime(residue, (1, 1))
    create()
    assert files(tmp_path, ".tmp") == []
    assert store.commit(ids(1), [True]) == [NOT_FOUND]
    put(store, ids(1), data(1, 8))
    assert store.lookup(ids(1)) == [True]


@pytest.mark.parametrize("durability", ["none", "flush", "fsync"])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("length", [1, 511, 4096, 4097, (1 << 20) + 1, 3 << 20])
def test_any_length_round_trips(create, ids, durability, direct, length, tmp_path):
    store = create(io_direct=direct, durability=durability)
    source = torch.arange(2 * length + 1, dtype=torch.int64).to(torch.uint8)
    for offset in (0, 1):  # at least one of them is unaligned
        rows = source[offset : offset + 2 * length].view(2, length)
        put(store, ids(2, f"{offset}"), rows)
        target = torch.zeros(2 * length + 1, dtype=torch.uint8)[offset : offset + 2 * length].view(
            2, length
        )
        assert store.wait(create(io_direct=direct).load(ids(2, f"{offset}"), 0, target)) == OK
        assert torch.equal(target, rows)
    assert {os.stat(path).st_size for path in files(tmp_path, ".kv")} == {4096 + length}


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.complex64]
)
def test_any_dtype_round_trips_and_only_as_itself(create, ids, dtype):
    store = create()
    source = torch.arange(24).view(torch.uint8)[:96].clone().fill_(1).view(torch.uint8)
    source = source.view(dtype) if dtype is not torch.bool else source.bool()
    put(store, ids(1), source)
    assert torch.equal(got(store, ids(1), source)[1].view(torch.uint8), source.view(torch.uint8))
    for where in (store, create()):
        other = torch.zeros(96, dtype=torch.uint8)
        task = where.load(ids(1), 0, other)
        assert where.wait(task) == BAD_PARAMETER
        assert "destination" in where.error(task).text


def test_a_list_is_one_tensor_a_block_each_of_its_own_length(create, ids, data):
    store = create()
    source = [data(3, 3), data(1), data(2, 2, 2)]
    put(store, ids(3), source)
    target = [torch.zeros_like(one) for one in source]
    assert store.wait(store.load(ids(3), 0, target)) == OK
    assert all(map(torch.equal, source, target))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_block_of_two_shards_is_whole_when_both_are_there(create, ids, data, order):
    ranks = [create(shards=2), create(shards=2)]
    reader = create(shards=2)
    source = data(2, 6)
    for rank in order:
        assert reader.lookup(ids(1)) == [False]
        assert [got(reader, ids(1), source[0], shard)[0] for shard in (0, 1)] == [NOT_FOUND] * 2
        put(ranks[rank], ids(1), source[rank], offset=rank)
    assert reader.lookup(ids(1)) == [True]
    for rank in (0, 1):
        assert torch.equal(got(reader, ids(1), source[rank], rank)[1], source[rank])
    assert create(shards=4).lookup(ids(1)) == [False]
    with pytest.raises(BadParameter, match="offset"):
        reader.load(ids(1), 2, source[0])


def test_two_writers_of_one_block_leave_one_whole_block(create, ids, data, tmp_path):
    one, two = create(), create()
    source = data(1, 1000)
    put(one, ids(1), source, commit=False)
    put(two, ids(1), source, commit=False)
    assert len(files(tmp_path, ".tmp")) == 2
    assert one.commit(ids(1), [True]) == two.commit(ids(1), [True]) == [OK]
    assert len(files(tmp_path)) == 1
    assert torch.equal(got(one, ids(1), source)[1], source)


def test_a_second_dump_replaces_the_first(create, ids, data, tmp_path):
    store = create()
    first, second = data(1, 9, seed=1), data(1, 9, seed=2)
    put(store, ids(1), first, commit=False)
    put(store, ids(1), second, commit=False)
    assert len(files(tmp_path)) == 1
    assert torch.equal(got(store, ids(1), first)[1], second)
    store.commit(ids(1), [True])
    assert torch.equal(got(store, ids(1), first)[1], second)


def test_commit_false_leaves_nothing_and_commit_twice_is_fine(create, ids, data, tmp_path):
    store = create()
    put(store, ids(2), data(2, 3), commit=False)
    assert store.commit(ids(2), [False, True]) == [OK, OK]
    assert len(files(tmp_path)) == 1
    assert store.commit(ids(2), [True, True]) == [NOT_FOUND, OK]
    assert store.commit(ids(2, "never"), [True, False]) == [NOT_FOUND, OK]


def test_a_batch_reports_a_status_a_block(create, ids, data):
    store = create()
    source = data(3, 4)
    put(store, [ids(3)[0], ids(3)[2]], source[[0, 2]])
    target = torch.zeros_like(source)
    task = store.load(ids(3), 0, target)
    assert store.wait(task) == NOT_FOUND
    assert task.statuses == [OK, NOT_FOUND, OK]
    failure = store.error(task)
    assert (failure.block_id, failure.shard, failure.errno) == (ids(3)[1], 0, 2)
    assert "no such block" in failure.text
    assert torch.equal(target[[0, 2]], source[[0, 2]])


def test_a_second_wait_is_a_typed_error(create, ids, data):
    store = create()
    task = store.dump(ids(1), 0, data(1, 2))
    assert store.wait(task) == OK
    with pytest.raises(AlreadyWaited, match="already"):
        store.wait(task)
    assert store.check(task) == (OK, True)
    assert store.error(task) is None


def test_empty_calls_are_done_at_once(create):
    store = create()
    assert store.wait(store.dump([], 0, [])) == OK
    assert store.wait(store.load([], 0, [])) == OK
    assert store.commit([], []) == []
    store.prefetch([])


@pytest.mark.parametrize(
    ("block_ids", "tensor", "text"),
    [
        ([b"short"], torch.zeros(1), "block id 0: given bytes of 5; allowed bytes of 16"),
        (["0" * 16], torch.zeros(1), "block id 0: given str"),
        (b"0" * 16, torch.zeros(1), "block ids: given bytes"),
        ([b"0" * 16] * 2, torch.zeros(2), "given twice"),
        ([b"0" * 16, b"1" * 16], torch.zeros(3), "does not split evenly"),
        ([b"0" * 16, b"1" * 16], [torch.zeros(3)], "given 1 for 2"),
        ([], torch.zeros(3), "into 0 blocks"),
        ([b"0" * 16], torch.zeros(4, 4).t(), "contiguous"),
        ([b"0" * 16], torch.zeros(0), "empty tensor"),
        ([b"0" * 16], torch.zeros(2, device="meta"), "on meta"),
        ([b"0" * 16], torch.zeros(2).to_sparse(), "sparse"),
        ([b"0" * 16], torch.zeros(2, dtype=torch.complex64).conj(), "conjugate .* plain tensors: "),
        ([b"0" * 16], torch._neg_view(torch.zeros(2)), "negative view"),
        ([b"0" * 16], given_up(torch.zeros(1000)), "memory was given up"),
        ([b"0" * 16, b"1" * 16], given_up(torch.zeros(2, 500)), "memory was given up"),
        ([b"0" * 16], [given_up(torch.zeros(1000))], "tensor 0: .* memory was given up"),
        ([b"0" * 16], fake(2), "fake"),
        ([b"0" * 16], [1], "given int"),
        ([b"0" * 16], 1, "given int"),
    ],
)
def test_a_wrong_dump_is_refused_at_the_call(create, block_ids, tensor, text):
    with pytest.raises(BadParameter, match=text):
        create().dump(block_ids, 0, tensor)


def test_a_tensor_in_a_transform_is_refused_at_the_call(create, ids):
    store = create()
    with pytest.raises(BadParameter, match="in a transform"):
        torch.func.vmap(lambda row: store.dump(ids(1), 0, row))(torch.zeros(2, 3))


def test_wrong_commits_and_tasks_are_refused(create, ids):
    store = create()
    for flags in ([True], [1, 0], [True, None], None, iter([True, True])):
        with pytest.raises(BadParameter, match="one bool a block"):
            store.commit(ids(2), flags)
    with pytest.raises(BadParameter, match="task"):
        store.wait(7)
    task = store.load(ids(1), 0, torch.zeros(1))
    for limit in (-1, "5", True, float("nan"), 10**30):
        with pytest.raises(BadParameter, match=r"timeout_ms: given .*; allowed None or 0 to"):
            store.wait(task, timeout_ms=limit)
    assert store.wait(task, timeout_ms=0) == NOT_FOUND


def test_a_configured_block_size_is_required(create, ids):
    store = create(block_size=8)
    put(store, ids(1), torch.zeros(8, dtype=torch.uint8))
    with pytest.raises(BadParameter, match="block_size = 8"):
        store.dump(ids(1), 0, torch.zeros(9, dtype=torch.uint8))


def test_strict_alignment_refuses_a_pointer_off_by_one_element(create, ids):
    store = create(io_direct=True, strict_alignment=True)
    page = torch.zeros(3 * 4096, dtype=torch.uint8)
    begin = -page.data_ptr() % 4096
    put(store, ids(1), page[begin : begin + 4096])
    for wrong in (page[begin + 1 : begin + 4097], page[begin : begin + 4095]):
        with pytest.raises(AlignmentError, match="% 4096 = "):
            store.dump(ids(1), 0, wrong)


def test_a_closed_store_refuses_and_closes_twice(create, ids, data):
    store = create()
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.lookup(ids(1))


class Gate(RealDisk):
    """Writes of data wait until the gate opens."""

    def __init__(self):
        self.gate = threading.Event()
        self.inside = threading.Semaphore(0)

    def pwrite(self, fd, view, offset):
        if offset >= 4096 and len(view) != 4096:
            self.inside.release()
            assert self.gate.wait(60)
        return super().pwrite(fd, view, offset)


def test_timeout_cancel_and_commit_while_a_dump_runs(create, ids, data, tmp_path):
    disk = Gate()
    store = create(disk=disk, workers=1)
    task = store.dump(ids(3), 0, data(3, 5))
    disk.inside.acquire()
    assert store.wait(task, timeout_ms=1) == TIMEOUT
    assert store.check(task) == (OK, False)
    assert store.commit(ids(1), [True]) == [RETRY]
    assert store.cancel(task) == 2
    disk.gate.set()
    assert store.wait(task) == CANCELLED
    assert task.statuses == [OK, CANCELLED, CANCELLED]
    assert store.commit(ids(3), [True] * 3) == [OK, NOT_FOUND, NOT_FOUND]
    assert len(files(tmp_path)) == 1


def test_commit_false_while_a_dump_runs_leaves_nothing(create, ids, data, tmp_path):
    disk = Gate()
    store = create(disk=disk)
    task = store.dump(ids(1), 0, data(1, 5))
    disk.inside.acquire()
    assert store.commit(ids(1), [False]) == [OK]
    disk.gate.set()
    assert store.wait(task) == CANCELLED
    assert files(tmp_path) == []


def test_many_callers_at_once(create, ids, data):
    store = create(cache_bytes=8192, workers=3)
    source = data(20, 700)
    wrong = []

    def client(number):
        mine = ids(20, str(number))
        put(store, mine, source)
        for _ in range(3):
            status, target = got(store, mine, source)
            if status or not torch.equal(target, source):
                wrong.append(number)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert wrong == []


def test_the_oldest_blocks_go_when_the_capacity_is_reached(create, ids, data, tmp_path):
    store = create(capacity_bytes=5 * 5096)
    source = torch.zeros(7, 1000, dtype=torch.uint8)
    for index in range(5):
        put(store, [ids(7)[index]], source[index])
        os.utime(next((tmp_path / "kv").rglob(f"{ids(7)[index].hex()}*")), (1000 + index,) * 2)
    got(store, ids(1), source[0])  # loaded: now the youngest
    put(store, [ids(7)[5]], source[5])
    assert store.lookup(ids(6)) == [True, False, False, True, True, True]
    task = store.dump(ids(1, "large"), 0, torch.zeros(30000, dtype=torch.uint8))
    assert store.wait(task) < 0
    assert "capacity_bytes" in store.error(task).text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("direct", [False, True])
def test_device_tensors_round_trip_after_the_work_queued_before(create, ids, direct):
    store = create(io_direct=direct)
    source = torch.zeros(4, 1 << 20, device="cuda")
    for step in range(20):
        source += step
    put(store, ids(4), source)
    status, target = got(create(io_direct=direct), ids(4), source)
    assert status == OK
    assert torch.equal(target, source)


class Torn(BaseException):
    """What ends a worker from outside."""


class TornDisk(RealDisk):
    """The worker is torn down inside its n-th write."""

    left = 0

    def pwrite(self, fd, view, offset):
        self.left -= 1
        if self.left == 0:
            raise Torn
        return super().pwrite(fd, view, offset)


def test_a_worker_torn_down_leaves_the_block_invisible_and_the_task_done(
    create, ids, data, at_once, tmp_path
):
    disk = TornDisk()
    store = create(disk=disk, executor=at_once())
    disk.left = 2
    with pytest.raises(Torn):
        store.dump(ids(1), 0, data(1, 5))
    assert len(files(tmp_path, ".tmp")) == 1
    assert store.commit(ids(1), [True]) == [NOT_FOUND]
    put(store, ids(1), data(1, 5))
    assert store.lookup(ids(1)) == [True]


class SlowReads(RealDisk):
    """A read waits at the gate while `slow`."""

    slow = False

    def __init__(self):
        self.gate = threading.Event()
        self.inside = threading.Semaphore(0)

    def pread(self, fd, view, offset):
        if self.slow:
            self.inside.release()
            assert self.gate.wait(60)
        return super().pread(fd, view, offset)


def test_a_block_being_read_is_not_collected(create, ids, tmp_path):
    disk = SlowReads()
    store = create(disk=disk, capacity_bytes=3 * 5096, cache_bytes=4096)
    source = torch.zeros(4, 1000, dtype=torch.uint8)
    for index in range(3):
        put(store, [ids(4)[index]], source[index])
        os.utime(next((tmp_path / "kv").rglob(f"{ids(4)[index].hex()}*")), (1000 + index,) * 2)
    disk.slow = True
    task = store.load(ids(1), 0, torch.zeros_like(source[0]))
    disk.inside.acquire()
    put(store, [ids(4)[3]], source[3])
    assert store.lookup(ids(4)) == [True, False, False, True]
    disk.gate.set()
    assert store.wait(task) == OK
