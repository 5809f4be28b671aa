"""The cache: bounded, written through, nothing evicted or reused under whoever holds it."""

import os
import threading

import pytest
import torch

from systems.store.cache import CacheStage
from systems.store.config import configured
from systems.store.errors import BlockMismatch, BlockNotFound, DiskFailed
from systems.store.piece import Piece
from systems.store.real import Threads
from systems.store.stage import Dump

PAGE = 4096


class Lower:
    """A lower stage in memory, with a gate at each write and read."""

    name = "Lower"

    def __init__(self):
        self.blocks = {}
        self.reads = []
        self.touched = []
        self.error = None
        self.before = lambda: None

    def begin(self, block_id, shard):
        return Dump(block_id, shard)

    def write(self, dump, piece):
        self.before()
        if self.error:
            raise self.error
        self.blocks[dump.key] = (bytes(piece.outgoing()), piece.dtype)

    def read(self, block_id, shard, piece):
        self.reads.append((block_id, shard))
        self.before()
        if self.error:
            raise self.error
        if (block_id, shard) not in self.blocks:
            raise BlockNotFound("no such block", 2)
        data, dtype = self.blocks[block_id, shard]
        if (len(data), dtype) != (piece.length, piece.dtype):
            raise BlockMismatch("another destination")
        piece.incoming()[:] = data
        piece.landed()

    def describe(self, block_id, shard):
        data, dtype = self.blocks[block_id, shard]
        return len(data), dtype

    def touch(self, block_id, shard):
        self.touched.append(block_id)

    def mine(self, block_id, shard):
        return (block_id, shard) in self.blocks

    def drop(self, block_id):
        self.blocks.pop((block_id, 0), None)

    def abandon(self, dump):
        pass

    def close(self):
        pass


@pytest.fixture
def lower():
    return Lower()


@pytest.fixture
def cache(lower):
    config = configured({"storage_path": "/kv", "cache_bytes": 2 * PAGE})
    return CacheStage(config, lower, Threads(1))


def block(value, length=PAGE):
    return torch.full((length,), value, dtype=torch.uint8)


def dump(cache, name, value, length=PAGE):
    cache.write(cache.begin(name, 0), Piece(block(value, length)))


def load(cache, name, length=PAGE):
    target = torch.zeros(length, dtype=torch.uint8)
    cache.read(name, 0, Piece(target))
    assert len(set(target.tolist())) == 1
    return int(target[0])


def test_a_dump_is_with_the_lower_stage_when_it_returns_and_a_load_needs_no_read(cache, lower):
    dump(cache, b"a", 1)
    assert lower.blocks[b"a", 0][0] == bytes([1]) * PAGE
    assert load(cache, b"a") == 1
    assert lower.reads == []
    assert lower.touched == [b"a"]


def test_the_least_recently_used_goes_and_the_pool_stays_bounded(cache, lower):
    for value, name in enumerate((b"a", b"b"), 1):
        dump(cache, name, value)
    assert load(cache, b"a") == 1
    dump(cache, b"c", 3)
    assert [load(cache, name) for name in (b"a", b"c")] == [1, 3]
    assert lower.reads == []
    assert load(cache, b"b") == 2
    assert lower.reads == [(b"b", 0)]
    for length in (1, PAGE + 1, 2 * PAGE, 3 * PAGE, PAGE):
        dump(cache, b"d", 4, length)
        assert load(cache, b"d", length) == 4
        assert cache._pool._used <= 2 * PAGE


def test_a_failed_dump_is_not_cached(cache, lower):
    dump(cache, b"a", 1)
    lower.error = DiskFailed("EIO", 5)
    with pytest.raises(DiskFailed):
        dump(cache, b"a", 2)
    lower.error = None
    assert load(cache, b"a") == 1
    assert lower.reads == [(b"a", 0)]


def test_what_was_dropped_is_not_cached(cache, lower):
    dump(cache, b"a", 1)
    cache.drop(b"a")
    with pytest.raises(BlockNotFound):
        load(cache, b"a")


def test_a_redump_replaces_what_is_cached(cache, lower):
    for value in (1, 2, 3):
        dump(cache, b"a", value)
        assert load(cache, b"a") == value
    dump(cache, b"a", 4, 3 * PAGE)  # larger than the pool
    assert load(cache, b"a", 3 * PAGE) == 4


def test_another_destination_is_an_error_and_no_wrong_data(cache):
    dump(cache, b"a", 1)
    with pytest.raises(BlockMismatch, match="4096 bytes of uint8"):
        load(cache, b"a", 100)
    with pytest.raises(BlockMismatch):
        cache.read(b"a", 0, Piece(torch.zeros(PAGE // 4)))


def test_buffers_in_use_are_never_reused_and_the_rest_goes_past_the_cache(cache, lower):
    """Two dumps hold the whole pool while others dump and load."""
    inside, leave = threading.Semaphore(0), threading.Event()

    def hold():
        inside.release()
        assert leave.wait(60)

    lower.before = hold
    holders = [
        threading.Thread(target=dump, args=(cache, name, value)) for name, value in ((b"a", 1), (b"b", 2))
    ]
    for one in holders:
        one.start()
        inside.acquire()
    lower.before = lambda: None
    for value in range(3, 9):
        dump(cache, b"%d" % value, value)
        assert load(cache, b"%d" % value) == value
    assert cache._pool._used <= 2 * PAGE
    leave.set()
    for one in holders:
        one.join()
    assert [lower.blocks[name, 0][0][0] for name in (b"a", b"b")] == [1, 2]
    assert [load(cache, name) for name in (b"a", b"b")] == [1, 2]


def test_waiters_get_the_owners_error_and_a_later_load_tries_again(cache, lower):
    lower.blocks[b"a", 0] = (bytes([7]) * PAGE, "uint8")
    inside, leave = threading.Semaphore(0), threading.Event()

    def hold():
        inside.release()
        assert leave.wait(60)

    lower.before, lower.error = hold, DiskFailed("EIO", 5)
    errors = []

    def wait():
        try:
            load(cache, b"a")
        except DiskFailed as error:
            errors.append(error.errno)

    clients = [threading.Thread(target=wait) for _ in range(4)]
    clients[0].start()
    inside.acquire()
    for one in clients[1:]:
        one.start()
    while cache._pool._nodes[b"a", 0].holders < len(clients):
        os.sched_yield()
    leave.set()
    for one in clients:
        one.join()
    assert errors == [5] * 4
    assert lower.reads == [(b"a", 0)]
    lower.error, lower.before = None, lambda: None
    assert load(cache, b"a") == 7


def test_prefetch_brings_a_block_nearer(cache, lower):
    lower.blocks[b"a", 0] = (bytes([7]) * PAGE, "uint8")
    cache.prefetch(b"a", 0)
    assert lower.reads == [(b"a", 0)]
    assert load(cache, b"a") == 7
    cache.prefetch(b"a", 0)
    assert lower.reads == [(b"a", 0)]


def test_a_store_prefetches_and_goes_on_without(create, ids, data):
    store = create()
    source = data(2, 10)
    store.wait(store.dump(ids(2), 0, source))
    store.commit(ids(2), [True] * 2)
    other = create(cache_bytes=PAGE)
    other.prefetch(ids(5))
    target = torch.zeros_like(source)
    assert other.wait(other.load(ids(2), 0, target)) == 0
    assert torch.equal(source, target)


def held(lower):
    """The lower stage stops at its next call; an event that lets it go, and one that says it is there."""
    inside, leave = threading.Semaphore(0), threading.Event()

    def hold():
        lower.before = lambda: None
        inside.release()
        assert leave.wait(60)

    lower.before = hold
    return inside, leave


def test_a_buffer_under_a_running_load_is_not_evicted(cache, lower):
    lower.blocks[b"a", 0] = (bytes([7]) * PAGE, "uint8")
    inside, leave = held(lower)
    loading = threading.Thread(target=load, args=(cache, b"a"))
    loading.start()
    inside.acquire()
    dump(cache, b"b", 2)
    dump(cache, b"c", 3)
    leave.set()
    loading.join()
    assert [load(cache, name) for name in (b"c", b"a", b"b")] == [3, 7, 2]


def test_a_dropped_buffer_is_free_once_when_its_last_holder_goes(cache, lower):
    lower.blocks[b"a", 0] = (bytes([7]) * PAGE, "uint8")
    inside, leave = held(lower)
    clients = [threading.Thread(target=load, args=(cache, b"a")) for _ in range(2)]
    clients[0].start()
    inside.acquire()
    clients[1].start()
    while cache._pool._nodes[b"a", 0].holders < 2:
        os.sched_yield()
    cache._pool.discard((b"a", 0))
    leave.set()
    for one in clients:
        one.join()
    for value, name in enumerate((b"x", b"y"), 1):
        dump(cache, name, value)
    assert [load(cache, name) for name in (b"x", b"y")] == [1, 2]
