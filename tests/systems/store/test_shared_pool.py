"""One pool for several stores and processes: who sees what, and what a killed process leaves behind."""

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
import torch

from systems.store.errors import NOT_FOUND, OK, OS_ERROR, ConfigError, StorageUnusable
from systems.store.real import RealDisk
from systems.store.shared_file import FOLDER

WAIT = 60
SIZE = 4096
CHILD = """
import hashlib, sys, torch
from systems.store import UcmConnectorFactory
from systems.store.real import RealDisk

ids = [hashlib.md5(str(number).encode()).digest() for number in range(16)]

def rows(count):
    return torch.stack([torch.full((4096,), number + 1, dtype=torch.uint8) for number in range(count)])

def stop(*_):
    print("inside", flush=True)
    sys.stdin.read()

def opened(name, path, slots, disk=None, **config):
    return UcmConnectorFactory.create_connector("UcmPipelineStore", {
        "storage_path": path, "block_size": 4096, "cache_bytes": 4096 * slots, "cache_shared": name,
        "durability": "none", **config}, disk=disk)

class Stops(RealDisk):
    on = False
    def pread(self, fd, view, offset):
        if self.on and offset:
            stop()
        return super().pread(fd, view, offset)

name, path = sys.argv[1:]
"""


def rows(count, add=1):
    return torch.stack([torch.full((SIZE,), number + add, dtype=torch.uint8) for number in range(count)])


class Counting(RealDisk):
    """Counts reads of data; may fail them, or stop in them."""

    def __init__(self):
        self.reads = 0
        self.error = None
        self.hold = None

    def pread(self, fd, view, offset):
        if offset:
            self.reads += 1
            if self.hold:
                self.hold()
            if self.error:
                raise OSError(self.error, "no")
        return super().pread(fd, view, offset)


@pytest.fixture
def name():
    found = f"test-{uuid.uuid4().hex}"
    yield found
    Path(FOLDER, f"rankfault-kv-{found}").unlink(missing_ok=True)


@pytest.fixture
def pipeline():
    return "Cache|Posix"


@pytest.fixture
def shared(create, name):
    """Stores on one folder and one pool, each with its own counting disk."""

    def make(slots=4, **config):
        disk = Counting()
        store = create(
            disk=disk, block_size=SIZE, cache_bytes=SIZE * slots, cache_shared=name, durability="none",
            **config,
        )  # fmt: skip
        store.disk = disk
        return store

    return make


def put(store, ids, tensor, offset=0, *, commit=True):
    assert store.wait(store.dump(ids, offset, tensor)) == OK
    if commit:
        assert store.commit(ids) == [OK] * len(ids)


def got(store, ids, offset=0):
    """Each block's code, or its value where it was loaded."""
    target = torch.zeros(len(ids), SIZE, dtype=torch.uint8)
    task = store.load(ids, offset, target)
    store.wait(task)
    found = []
    for code, row in zip(task.statuses, target, strict=True):
        values = set(row.tolist())
        assert code or len(values) == 1
        found.append(code or values.pop())
    return found


@pytest.fixture
def child(name, tmp_path):
    """A process that runs CHILD and some more; killed at the end."""
    made = []

    def start(script):
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", CHILD + script, name, str(tmp_path / "kv")],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
        )
        return made[-1]

    yield start
    for one in made:
        one.kill()
        one.communicate()


def kill(process):
    process.send_signal(signal.SIGKILL)
    assert process.wait(WAIT) == -signal.SIGKILL


def until_somebody_waits(name):
    """The kernel lists who waits for a lock of the pool's file, with an arrow."""
    inode = f":{os.stat(f'{FOLDER}/rankfault-kv-{name}').st_ino} "
    while not any(
        "->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()
    ):
        os.sched_yield()


def test_what_one_store_committed_another_finds_without_a_read(shared, ids):
    one, other = shared(), shared()
    put(one, ids(3), rows(3))
    assert got(other, ids(4)) == [1, 2, 3, NOT_FOUND]
    assert other.disk.reads == 0
    assert got(shared(), ids(3)) == [1, 2, 3]


def test_what_is_not_committed_is_its_own_stores(shared, ids):
    one, other = shared(), shared()
    put(one, ids(2), rows(2), commit=False)
    assert got(one, ids(2)) == [1, 2]
    assert got(other, ids(2)) == [NOT_FOUND] * 2
    assert one.commit(ids(2), [True, False]) == [OK, OK]
    assert got(one, ids(2)) == got(other, ids(2)) == [1, NOT_FOUND]
    assert one.disk.reads == other.disk.reads == 0


def test_a_second_dump_is_everybodys_when_it_is_committed(shared, ids):
    one, other = shared(), shared()
    put(one, ids(1), rows(1))
    put(other, ids(1), rows(1, add=7), commit=False)
    assert (got(one, ids(1)), got(other, ids(1))) == ([1], [7])
    other.commit(ids(1))
    assert got(one, ids(1)) == got(other, ids(1)) == [7]
    assert one.disk.reads == other.disk.reads == 0


def test_a_shard_in_the_pool_is_no_whole_block(shared, ids):
    ranks = [shared(shards=2) for _ in range(2)]
    put(ranks[0], ids(1), rows(1))
    assert got(ranks[0], ids(1)) == [1]
    assert got(ranks[1], ids(1)) == [NOT_FOUND]
    put(ranks[1], ids(1), rows(1, add=2), offset=1)
    assert [got(store, ids(1), shard) for store in ranks for shard in (0, 1)] == [[1], [2]] * 2
    assert [store.disk.reads for store in ranks] == [0, 0]


def test_a_block_whose_file_is_gone_is_gone(shared, ids, tmp_path):
    one, other = shared(), shared()
    put(one, ids(1), rows(1))
    for path in tmp_path.rglob("*.kv"):
        path.unlink()
    assert got(one, ids(1)) == got(other, ids(1)) == [NOT_FOUND]


def test_a_failed_dump_is_nobodys(shared, ids, tmp_path):
    one = shared()
    one.disk.pwrite = lambda fd, view, offset: 0
    task = one.dump(ids(1), 0, rows(1))
    assert one.wait(task) == OS_ERROR
    assert got(one, ids(1)) == got(shared(), ids(1)) == [NOT_FOUND]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_pool_smaller_than_a_batch_works_and_stays_bounded(shared, ids, slots, name):
    one, other = shared(slots), shared(slots)
    put(one, ids(8), rows(8))
    for _ in range(2):
        assert got(one, ids(8)) == got(other, ids(8)) == list(range(1, 9))
    assert os.stat(f"{FOLDER}/rankfault-kv-{name}").st_size == SIZE * (2 + slots)


def test_the_one_used_longest_ago_goes_whoever_used_it(shared, ids):
    one, other = shared(2), shared(2)
    put(one, ids(2), rows(2))
    assert got(other, ids(1)) == [1]
    put(other, ids(3)[2:], rows(3)[2:])
    assert got(one, [ids(3)[0], ids(3)[2]]) == [1, 3]
    assert one.disk.reads == 0
    assert got(one, [ids(3)[1]]) == [2]
    assert one.disk.reads == 1


def test_other_geometry_is_refused_while_the_pool_is_in_use(shared, ids, name):
    store = shared(4)
    with pytest.raises(ConfigError, match=r"cache_shared: given 5 buffers of 4096 bytes .* 4 of 4096"):
        shared(5)
    put(store, ids(1), rows(1))
    assert got(shared(4), ids(1)) == [1]


def test_the_last_one_that_closes_removes_the_file(shared, ids, name):
    path = Path(FOLDER, f"rankfault-kv-{name}")
    one, other = shared(4), shared(4)
    one.close()
    assert path.exists()
    other.close()
    assert not path.exists()
    put(shared(5), ids(1), rows(1))


def test_a_pool_without_room_says_so_and_leaves_nothing(shared, name, monkeypatch):
    def full(fd, begin, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageUnusable, match=r"no room for 24576 bytes \(ENOSPC.*smaller cache_bytes"):
        shared(4)
    assert not Path(FOLDER, f"rankfault-kv-{name}").exists()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"cache_shared": "a/b"}, "cache_shared: given 'a/b'; allowed up to 64"),
        ({"cache_shared": "a", "store_pipeline": "Posix"}, "only with a Cache stage"),
        ({"cache_shared": "a", "block_size": 0}, "block_size: given 0; allowed with cache_shared"),
        ({"cache_shared": "a", "block_size": 1 << 20, "cache_bytes": 4096}, "nearest: 1048576"),
        ({"cache_shared": 3}, "cache_shared: given 3; allowed a string"),
    ],
)
def test_what_cannot_be_shared_is_told(create, config, text):
    with pytest.raises(ConfigError, match=text):
        create(**{"block_size": SIZE, **config})


def waiting_load(store, ids, name):
    """A load in a thread, which waits for somebody else's; its result comes into the list."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(got(store, ids)))
    thread.start()
    until_somebody_waits(name)
    return thread, found


@pytest.fixture
def stored(create, ids):
    """Blocks in the folder and in no pool."""
    put(create(), ids(8), rows(8))


def test_a_waiter_whose_filler_fails_loads_itself(shared, stored, ids, name):
    one, other = shared(), shared()
    inside, leave = threading.Event(), threading.Event()

    def hold():
        inside.set()
        assert leave.wait(WAIT)

    one.disk.hold, one.disk.error = hold, 5
    filler = one.load(ids(1), 0, torch.zeros(1, SIZE, dtype=torch.uint8))
    assert inside.wait(WAIT)
    waiter, found = waiting_load(other, ids(1), name)
    leave.set()
    waiter.join(WAIT)
    assert one.wait(filler) == OS_ERROR
    assert found == [1]
    assert other.disk.reads == 1
    one.disk.error = None
    assert got(one, ids(1)) == [1]
    assert one.disk.reads == 1


def test_a_waiter_reads_what_the_filler_read(shared, stored, ids, name):
    one, other = shared(), shared()
    inside, leave = threading.Event(), threading.Event()

    def hold():
        inside.set()
        assert leave.wait(WAIT)

    one.disk.hold = hold
    filler = one.load(ids(1), 0, torch.zeros(1, SIZE, dtype=torch.uint8))
    assert inside.wait(WAIT)
    waiter, found = waiting_load(other, ids(1), name)
    leave.set()
    waiter.join(WAIT)
    assert one.wait(filler) == OK
    assert found == [1]
    assert other.disk.reads == 0


def test_a_waiter_whose_filler_is_killed_loads_itself(shared, stored, ids, name, child):
    process = child("""
store = opened(name, path, 4, Stops())
Stops.on = True
store.wait(store.load(ids[:1], 0, torch.zeros(1, 4096, dtype=torch.uint8)))
""")
    assert process.stdout.readline() == "inside\n"
    store = shared()
    waiter, found = waiting_load(store, ids(1), name)
    kill(process)
    waiter.join(WAIT)
    assert found == [1]
    assert store.disk.reads == 1


def test_a_buffer_that_a_killed_process_held_is_kept_until_then_and_free_after(
    shared, stored, ids, name, child
):
    process = child("""
from systems.store.piece import Piece
store = opened(name, path, 1)
Piece.fill = stop  # the pool's only buffer is held, and full
store.wait(store.load(ids[:1], 0, torch.zeros(1, 4096, dtype=torch.uint8)))
""")
    assert process.stdout.readline() == "inside\n"
    store = shared(1)
    for _ in range(2):
        assert got(store, ids(3)[1:]) == [2, 3]  # past the cache, each time
    assert store.disk.reads == 4
    assert got(store, ids(1)) == [1]
    assert store.disk.reads == 4  # what the other process read
    kill(process)
    for _ in range(2):
        assert got(store, ids(3)[2:]) == [3]
    assert store.disk.reads == 5


def test_a_process_killed_while_it_changes_the_table_blocks_nobody(shared, stored, ids, name, child):
    process = child("""
from systems.store.shared_table import Table
store = opened(name, path, 2)
Table.use = stop  # half an entry, under the set's lock
store.wait(store.load(ids[:1], 0, torch.zeros(1, 4096, dtype=torch.uint8)))
""")
    assert process.stdout.readline() == "inside\n"
    store = shared(2)
    waiter, found = waiting_load(store, ids(2), name)
    kill(process)
    waiter.join(WAIT)
    assert found == [1, 2]
    assert got(store, ids(2)) == [1, 2]
    assert store.disk.reads == 2


def test_what_a_killed_process_left_is_no_obstacle(shared, ids, name, child):
    process = child("""
store = opened(name, path, 4)
assert store.wait(store.dump(ids[:3], 0, rows(3))) == 0
assert store.commit(ids[:2]) == [0, 0]
stop()
""")
    assert process.stdout.readline() == "inside\n"
    beside = shared(4)
    assert got(beside, ids(3)) == [1, 2, NOT_FOUND]
    assert beside.disk.reads == 0
    kill(process)
    assert got(beside, ids(3)) == [1, 2, NOT_FOUND]
    put(beside, ids(3)[2:], rows(1, add=9))
    assert got(beside, ids(3)) == [1, 2, 9]
    beside.close()


def test_leftovers_are_made_anew_with_any_geometry(shared, ids, name, child):
    process = child("""
store = opened(name, path, 4)
assert store.wait(store.dump(ids[:1], 0, rows(1))) == 0
stop()
""")
    assert process.stdout.readline() == "inside\n"
    kill(process)
    path = Path(FOLDER, f"rankfault-kv-{name}")
    before = path.stat()
    store = shared(5)
    assert path.stat().st_size == before.st_size + SIZE
    assert path.stat().st_ino != before.st_ino
    put(store, ids(5), rows(5))
    assert got(store, ids(5)) == [1, 2, 3, 4, 5]
    assert store.disk.reads == 0


def test_many_processes_at_once_load_only_what_is_right(shared, stored, ids, child):
    script = """
import random
store = opened(name, path, 3, workers=3)
target = torch.zeros(16, 4096, dtype=torch.uint8)
chosen = random.Random(len(ids))
for turn in range(24):
    numbers = [chosen.randrange(8) for _ in range(16)]
    target.zero_()
    assert store.wait(store.load([ids[n] for n in numbers], 0, target)) == 0
    assert torch.equal(target, torch.tensor(numbers, dtype=torch.uint8).add(1)[:, None].expand(16, 4096))
    mine = ids[8 + turn % 8]
    assert store.wait(store.dump([mine], 0, rows(1))) == 0
    assert store.commit([mine], [turn % 2 == 0]) == [0]
print("right", flush=True)
"""
    processes = [child(script) for _ in range(3)]
    assert [one.stdout.readline() for one in processes] == ["right\n"] * 3
    assert got(shared(3), ids(8)) == list(range(1, 9))
