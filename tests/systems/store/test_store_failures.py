"""Disk operation n fails, n = 1, 2, … until none does; damaged files; unusable folders."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch

from systems.store.errors import DAMAGED, NO_SPACE, NOT_FOUND, OK, OS_ERROR, StorageUnusable, StoreError
from systems.store.header import HEADER_BYTES

LIMIT = 200


def files(folder, end=""):
    return sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(end)
    )


def loaded(store, ids, like):
    target = torch.full_like(like, 7)
    task = store.load(ids, 0, target)
    store.wait(task)
    return task.statuses, target


@pytest.mark.parametrize("how", ["error", "short", "crash"])
@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("durability", ["none", "fsync"])
def test_dump_and_commit_with_each_operation_failing(
    create, failing, at_once, ids, data, tmp_path, how, direct, durability
):
    source = data(2, 3001)
    fired = set()
    for at in range(1, LIMIT):
        path = tmp_path / f"kv{at}"
        disk = failing()
        config = {"path": path, "io_direct": direct, "durability": durability}
        store = create(disk=disk, executor=at_once(), **config)
        disk.count, disk.at, disk.how = 0, at, how
        task = store.dump(ids(2), 0, source)
        dumped = task.statuses
        assert all(not hit for hit in create(**config).lookup(ids(2)))
        codes = store.commit(ids(2), [True, True])
        disk.at = 0
        seen = store.lookup(ids(2))
        other = create(**config)
        assert other.lookup(ids(2)) == seen
        for index, hit in enumerate(seen):
            statuses, target = loaded(other, [ids(2)[index]], source[index])
            assert statuses == [OK if hit else NOT_FOUND]
            assert not hit or torch.equal(target, source[index])
            if dumped[index] != OK:
                assert not hit, disk.fired
                assert codes[index] in (NOT_FOUND, OS_ERROR)
            assert hit or codes[index] != OK, disk.fired
        again = store.dump(ids(2), 0, source)
        assert store.wait(again) == OK
        assert store.commit(ids(2), [True, True]) == [OK, OK]
        statuses, target = loaded(create(**config), ids(2), source)
        assert statuses == [OK, OK]
        assert torch.equal(target, source)
        if not disk.fired:
            break
        fired.add(disk.fired)
    else:
        pytest.fail("it never ended")
    assert {"open", "pwrite", "rename", "close", "makedirs"} <= fired
    assert ("fsync" in fired, "fsync_dir" in fired) == (durability == "fsync",) * 2


@pytest.mark.parametrize("how", ["error", "short"])
@pytest.mark.parametrize("direct", [False, True])
def test_load_with_each_operation_failing(create, failing, at_once, ids, data, how, direct):
    source = data(2, 3001)
    writer = create()
    writer.wait(writer.dump(ids(2), 0, source))
    writer.commit(ids(2), [True, True])
    fired = set()
    for at in range(1, LIMIT):
        disk = failing()
        store = create(disk=disk, executor=at_once(), io_direct=direct)
        disk.count, disk.at, disk.how = 0, at, how
        statuses, target = loaded(store, ids(2), source)
        for index, status in enumerate(statuses):
            assert status in (OK, OS_ERROR)
            assert status != OK or torch.equal(target[index], source[index])
        assert how != "short" or statuses == [OK, OK]
        disk.at = 0
        statuses, target = loaded(store, ids(2), source)
        assert statuses == [OK, OK]
        assert torch.equal(target, source)
        if not disk.fired:
            break
        fired.add(disk.fired)
    else:
        pytest.fail("it never ended")
    assert {"open", "pread", "close"} <= fired


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EACCES, errno.EINTR]
)
def test_the_reason_reaches_the_caller(create, failing, at_once, ids, data, number):
    disk = failing(number=number, only=("pwrite",))
    store = create(disk=disk, executor=at_once())
    disk.count, disk.at, disk.how = 0, 1, "crash"
    task = store.dump(ids(1), 0, data(1, 5))
    expected = NO_SPACE if number in (errno.ENOSPC, errno.EDQUOT) else OS_ERROR
    assert store.wait(task) == expected
    failure = store.error(task)
    assert failure.errno == number
    assert errno.errorcode[number] in failure.text
    disk.at = 0


def test_one_interrupted_call_is_repeated(create, failing, at_once, ids, data):
    disk = failing(number=errno.EINTR, only=("pwrite",))
    store = create(disk=disk, executor=at_once())
    disk.count, disk.at = 0, 1
    assert store.wait(store.dump(ids(1), 0, data(1, 5))) == OK
    assert disk.fired == "pwrite"


def test_a_lookup_that_cannot_know_raises(create, failing, ids):
    disk = failing(only=("exists",))
    store = create(disk=disk)
    disk.count, disk.at = 0, 1
    with pytest.raises(StoreError, match="EIO"):
        store.lookup(ids(1))
    assert store.lookup(ids(1)) == [False]


@pytest.mark.parametrize("direct", [False, True])
def test_every_flipped_bit_of_a_small_block_is_an_error(create, ids, tmp_path, direct, at_once):
    source = torch.arange(8, dtype=torch.uint8)
    store = create(executor=at_once())
    store.wait(store.dump(ids(1), 0, source))
    store.commit(ids(1), [True])
    [path] = files(tmp_path, ".kv")
    whole = Path(path).read_bytes()
    reader = create(executor=at_once(), io_direct=direct)
    for at in [*range(0, 80), 1000, HEADER_BYTES - 1, *range(HEADER_BYTES, len(whole))]:
        for bit in (0, 7):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            Path(path).write_bytes(damaged)
            assert loaded(reader, ids(1), source)[0] == [DAMAGED], f"byte {at} bit {bit}"


def test_every_truncation_is_an_error(create, ids, tmp_path, at_once):
    source = torch.arange(8, dtype=torch.uint8)
    store = create(executor=at_once())
    store.wait(store.dump(ids(1), 0, source))
    store.commit(ids(1), [True])
    [path] = files(tmp_path, ".kv")
    reader = create(executor=at_once())
    for length in (HEADER_BYTES + 7, HEADER_BYTES, HEADER_BYTES - 1, 20, 0):
        os.truncate(path, length)
        task = reader.load(ids(1), 0, torch.zeros_like(source))
        assert reader.wait(task) == DAMAGED
        assert "cut short" in reader.error(task).text


def test_swapped_files_are_errors(create, ids, data, tmp_path):
    source = data(2, 4)
    store = create()
    store.wait(store.dump(ids(2), 0, source))
    store.commit(ids(2), [True, True])
    one, two = files(tmp_path, ".kv")
    os.rename(one, tmp_path / "aside")
    os.rename(two, one)
    os.rename(tmp_path / "aside", two)
    reader = create()
    assert loaded(reader, ids(2), source)[0] == [DAMAGED, DAMAGED]
    again = reader.dump(ids(2), 0, source)
    assert reader.wait(again) == OK
    reader.commit(ids(2), [True, True])
    assert torch.equal(loaded(create(), ids(2), source)[1], source)


def test_a_folder_that_goes_away_under_way(create, ids, data, tmp_path):
    store = create()
    source = data(1, 4)
    store.wait(store.dump(ids(1), 0, source))
    shutil.rmtree(tmp_path / "kv")
    assert store.commit(ids(1), [True]) == [NOT_FOUND]
    assert store.lookup(ids(1)) == [False]
    assert store.wait(store.dump(ids(1), 0, source)) == OK
    assert store.commit(ids(1), [True]) == [OK]
    assert store.lookup(ids(1)) == [True]


def test_a_waiting_load_gets_the_error_of_the_one_it_waits_for(create, failing, ids, data):
    source = data(1, 4)
    writer = create()
    writer.wait(writer.dump(ids(1), 0, source))
    writer.commit(ids(1), [True])
    disk = failing(only=("pread",))
    reader = create(disk=disk)
    disk.count, disk.at, disk.how = 0, 1, "crash"
    target = [torch.zeros_like(source) for _ in range(8)]
    task = reader.load(ids(1) * 8, 0, target)
    assert reader.wait(task) == OS_ERROR
    assert task.statuses == [OS_ERROR] * 8
    disk.at = 0
    assert reader.wait(reader.load(ids(1) * 8, 0, target)) == OK
    assert all(torch.equal(one, source) for one in target)


def test_unusable_storage_paths_say_so_at_creation(create, failing, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnusable, match="is a file; allowed a folder"):
        create(path=tmp_path / "file")
    with pytest.raises(StorageUnusable, match="is a file, or has one above it"):
        create(path=tmp_path / "file" / "below")
    for number, only, text in (
        (errno.EACCES, "open", "is not writable"),
        (errno.EROFS, "makedirs", "is not writable"),
        (errno.ENOSPC, "pwrite", "has no space left"),
        (errno.EIO, "pwrite", "cannot be used"),
    ):
        with pytest.raises(StorageUnusable, match=text) as caught:
            create(path=tmp_path / "kv", disk=failing(1, number=number, only=(only,)))
        assert caught.value.errno == number
        assert "\n" not in str(caught.value)


def test_a_full_disk_says_so_at_creation(create, failing, monkeypatch):
    disk = failing()
    monkeypatch.setattr(disk, "free_bytes", lambda path: 0)
    with pytest.raises(StorageUnusable, match="no space left"):
        create(disk=disk)


def test_a_file_system_without_direct_io_says_so_at_creation(create, failing):
    with pytest.raises(StorageUnusable, match="takes no direct I/O"):
        create(disk=failing(1, number=errno.EINVAL, only=("open",)), io_direct=True)


def test_creation_with_each_operation_failing_raises_or_works(create, failing, ids, tmp_path):
    stopped = set()
    for at in range(1, LIMIT):
        disk = failing(at)
        try:
            store = create(disk=disk, path=tmp_path / f"kv{at}", durability="fsync")
        except StorageUnusable:
            stopped.add(disk.fired)
        else:
            disk.at = 0
            assert store.lookup(ids(1)) == [False]
        if not disk.fired:
            assert {"makedirs", "free_bytes", "open", "pwrite", "fsync_dir"} <= stopped
            return
    pytest.fail("it never ended")
