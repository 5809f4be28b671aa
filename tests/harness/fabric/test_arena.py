"""Shared memory of a world: the lock, memory by number, keys, logs."""

import fcntl
import os

import pytest
import torch

from harness.errors import EngineError, OutOfBounds
from harness.fabric import arena as module
from harness.fabric.arena import Arena, ArenaWindows, Order, Telling


@pytest.fixture
def arena():
    made = Arena(os.memfd_create("test"), 2, make=True)
    made.reset()
    yield made
    made.close()
    os.close(made.fd)


def test_memory_has_numbers_guards_and_poison(arena):
    number, at = arena.take(module.region_bytes(10))
    again, after = arena.take(64)
    assert (number, again) == (0, 1)
    assert after - at == module.region_bytes(10)
    region = arena.region(at, 10, zero=False)
    assert region.payload() == bytes.fromhex("addef47f" * 3)[:10]
    assert region.copied().intact()
    region.view[region.base + 10] = 0
    assert region.copied().broken_guard() == 10
    with pytest.raises(OutOfBounds, match="do not fit"):
        arena.take(module.MEMORY_BYTES)


def test_a_window_is_made_once_and_found_by_all(arena):
    first = ArenaWindows(arena, 0, 2, Telling(arena, 0))
    second = ArenaWindows(arena, 1, 2, Telling(arena, 1))
    number = first.collective(("w", 0), "w", (4,), torch.int32, (), zero=True)
    first.regions[number][1].cells[16] = 5
    assert second.collective(("w", 0), "w", (4,), torch.int32, (), zero=True) == number
    assert second.regions[number][1].cells[16] == 5
    assert second.collective(("w", 1), "w", (4,), torch.int32, (), zero=True) == number + 1


def test_keys_count_apart(arena):
    with arena.order:
        one, two = arena.key(("sync", (), 1)), arena.key(("sync", (), 2))
        assert one != two
        arena[one] += 3
        assert (arena[arena.key(("sync", (), 1))], arena[two]) == (3, 0)
        for number in range(module.KEY_SLOTS - 2):
            arena.key(number)
        with pytest.raises(EngineError, match="at most"):
            arena.key("one more")


def test_a_log_is_read_on_from_where_it_was_left(arena):
    telling = Telling(arena, 1)
    telling.tell("one", 1)
    telling.flush()
    telling.tell("two", b"x")
    telling.flush()
    (length, records), (end, others) = arena.read(1, 8)
    assert (records, others) == ([("one", 1)], [("two", b"x")])
    assert list(arena.read(1, length)) == [(end, others)]
    assert list(arena.read(1, end)) == []
    assert list(arena.read(0, 8)) == []


def test_a_code_object_is_told_once(arena):
    telling = Telling(arena, 0)
    code = test_keys_count_apart.__code__
    assert [telling.code(None), telling.code(code), telling.code(code)] == [-1, 0, 0]
    telling.flush()
    assert next(arena.read(0, 8))[1] == [("code", code)]


def test_a_log_that_is_full_is_an_error(arena):
    telling = Telling(arena, 0)
    telling.tell("much", bytes(module.LOG_BYTES))
    with pytest.raises(EngineError, match="told more than"):
        telling.flush()


def test_the_lock_excludes_other_descriptions_and_may_be_taken_twice(arena):
    other = Order(arena.fd)
    read, write = os.pipe()
    with arena.order, arena.order:
        pid = os.fork()
        if not pid:
            with Order(arena.fd):
                os.write(write, b"x")
            os._exit(0)
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
    os.waitpid(pid, 0)
    assert os.read(read, 1) == b"x"
    other.close()
    os.close(read)
    os.close(write)


def test_the_lock_that_an_event_gave_back_is_taken_anew(arena):
    """An event gives it back within the `with` of whoever delivers (rank_natural.py, flush)."""
    for _ in range(2):
        with arena.order:
            held = Order(arena.fd)
            with pytest.raises(BlockingIOError):
                fcntl.fcntl(held._fd, fcntl.F_OFD_SETLK, module._TAKE)
            held.close()
            arena.order.give_all()
        assert arena.order.depth == 0


def test_a_new_plan_finds_nothing_of_the_one_before(arena):
    arena.take(64)
    with arena.order:
        arena[arena.key("k")] += 1
    Telling(arena, 0).flush()
    arena.reset()
    assert arena.take(64)[0] == 0
    with arena.order:
        assert arena[arena.key("k")] == 0
    assert list(arena.read(0, 8)) == []
