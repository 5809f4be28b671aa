"""The real ports, and stores in other processes."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from systems.store.real import RealClock, RealDisk, Threads

CHILD = """
import hashlib, os, sys, torch
from systems.store import UcmConnectorFactory
store = UcmConnectorFactory.create_connector("UcmPipelineStore", {"storage_path": sys.argv[1]})
ids = [hashlib.md5(str(number).encode()).digest() for number in range(3)]
assert store.wait(store.dump(ids, 0, torch.arange(300).view(3, 100))) == 0
assert store.commit(ids[:2], [True, False]) == [0, 0]
print(store.lookup(ids), flush=True)
os._exit(7)
"""


def test_another_process_with_another_hash_seed_that_dies(create, ids, tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "kv")],
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (told.returncode, told.stdout.strip()) == (7, "[True, False, False]"), told.stderr
    store = create()
    assert store.lookup(ids(3)) == [True, False, False]
    target = torch.zeros(3, 100, dtype=torch.int64)
    task = store.load(ids(3), 0, target)
    assert store.wait(task) < 0
    assert task.statuses[0] == 0
    assert torch.equal(target[0], torch.arange(100))
    assert store.wait(store.dump(ids(3), 0, target)) == 0
    assert store.commit(ids(3)) == [0, 0, 0]


FORKED = """
import hashlib, os, sys, torch
from systems.store import UcmConnectorFactory
from systems.store.errors import StoreForked
config = {"storage_path": sys.argv[1], "timeout_ms": 20_000, "block_size": 400}
if sys.argv[2]:
    config |= {"cache_shared": sys.argv[2]}
store = UcmConnectorFactory.create_connector("UcmPipelineStore", config)
ids = [hashlib.md5(str(number).encode()).digest() for number in range(3)]
source, target = torch.arange(300, dtype=torch.int32).view(3, 100), torch.zeros(3, 100, dtype=torch.int32)
task = store.dump(ids, 0, source)
assert store.wait(task) == 0
child = os.fork()
if not child:
    told = 0
    for call in (
        lambda: store.wait(store.load(ids, 0, target)), lambda: store.dump(ids, 0, source),
        lambda: store.commit(ids), lambda: store.lookup(ids), lambda: store.wait(task),
        lambda: store.prefetch(ids),
    ):
        try:
            call()
        except StoreForked:
            told += 1
    store.close()
    own = UcmConnectorFactory.create_connector("UcmPipelineStore", config)
    told += not any(own.lookup(ids))
    own.close()
    os._exit(told)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.commit(ids), store.lookup(ids))
assert store.wait(store.load(ids, 0, target)) == 0 and torch.equal(source, target)
store.close()
"""


@pytest.mark.parametrize("shared", ["", "forked"])
def test_a_forked_child_is_told_and_takes_nothing_from_its_parent(tmp_path, shared):
    name = shared and f"{shared}-{os.getpid()}"
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(tmp_path / "kv"), name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout.strip() == "7 [0, 0, 0] [True, True, True]", told.stderr
    assert told.returncode == 0, told.stderr


def test_workers_run_what_was_submitted_before_close():
    workers = Threads(2)
    seen = []
    for number in range(50):
        workers.submit(lambda number=number: seen.append(number))
    workers.close()
    workers.close()
    assert sorted(seen) == list(range(50))
    with pytest.raises(RuntimeError, match="closed"):
        workers.submit(print)


def test_forgotten_workers_end():
    workers = Threads(1)
    done = workers.event()
    workers.submit(done.set)
    assert done.wait(60)
    [thread] = workers._threads
    assert isinstance(thread, threading.Thread)
    del workers
    thread.join(60)
    assert not thread.is_alive()


def test_the_disk_reads_writes_and_tells(tmp_path):
    disk = RealDisk()
    folder = str(tmp_path / "a" / "b")
    disk.makedirs(folder)
    path = folder + "/one"
    assert not disk.exists(path)
    with pytest.raises(NotADirectoryError):
        disk.exists(__file__ + "/below")
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    assert disk.pwrite(fd, memoryview(b"abcdef"), 2) == 6
    disk.truncate(fd, 5)
    into = bytearray(9)
    assert disk.pread(fd, memoryview(into), 0) == 5
    assert into == b"\0\0abc\0\0\0\0"
    disk.fsync(fd)
    disk.close(fd)
    disk.fsync_dir(folder)
    disk.utime(path, 1000.0)
    found = disk.stat(path)
    assert (found.size, found.mtime, found.atime, found.is_dir) == (5, 1000.0, 1000.0, False)
    disk.rename(path, folder + "/two")
    assert disk.listdir(folder) == ["two"]
    assert disk.stat(folder).is_dir
    disk.unlink(folder + "/two")
    assert disk.listdir(folder) == []
    assert disk.free_bytes(folder) > 0


def test_the_clock_goes_on_and_agrees_with_file_times(tmp_path):
    clock = RealClock()
    assert clock.now() <= clock.now()
    before = clock.time()
    (tmp_path / "one").touch()
    assert before - 60 < RealDisk().stat(str(tmp_path / "one")).mtime < clock.time() + 60
