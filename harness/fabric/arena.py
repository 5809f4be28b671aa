"""The memory that the processes of one world share: windows, cells, logs, and one lock that orders.

One memfd, mapped by the harness and by every rank; it has no name, so nothing of it can be left behind.
In order: a header of 64-bit words, a table of memory by number, a table of rendezvous and of collective
windows by key, a log for each rank (its events and what else it tells the harness), the memory.

The lock (`Order`) is an fcntl range lock on an open file description of the process's own (F_OFD_SETLKW):
the kernel gives it back when its holder is killed. Whoever holds it performs one operation on memory,
cells included, and takes the next number of one counter for its event. So all operations of a world have
one total order, everybody's effects are seen in it (the lock's system calls are full barriers), and the
record is in it. Not promised: fairness. Not modelled: two processors that write the same bytes at once
(an operation is whole; where it may tear, `torn` in the plan cuts it into several).
"""

from __future__ import annotations

import fcntl
import marshal
import math
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from types import CodeType
from typing import Any

import torch

from harness.errors import EngineError, OutOfBounds
from harness.fabric.memory import GUARD_BYTES, ITEMSIZE, Region
from harness.fabric.windows import SharedWindows
from harness.record import RawEvent

HEADER_BYTES = 4096
TABLE_SLOTS = 1 << 14
TABLE_BYTES = TABLE_SLOTS * 16  # offset and size, by number
KEY_SLOTS = 1 << 13
KEY_BYTES = KEY_SLOTS * 16  # a key's digest, and what it counts or names
LOG_BYTES = 64 << 20
MEMORY_BYTES = 1 << 30  # address space; only what is touched costs memory
KEEP_BYTES = 64 << 20  # more than that is given back to the system between plans
ALIGN = 64

# Words of the header.
STAMP, NUMBER, USED, STOP = range(4)
STATE = 64  # and one for each rank
LOSTS = 128  # and one for each rank: the dead rank plus one that a blocked rank is told of
RUNNING, ENDED = -1, -2  # states; 0 and above: blocked, as seen at that stamp

_WORD = struct.Struct("<q")
_RECORD = struct.Struct("<i")


def _lock(kind: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 8, 0)


_TAKE, _GIVE = _lock(fcntl.F_WRLCK), _lock(fcntl.F_UNLCK)


class Order:
    """The world's one lock, as one process sees it; may be taken again by who holds it.

    An event of natural order gives it back whole (`give_all`), also where its taker stands in a `with`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)  # a description of its own
        self.depth = 0

    def __enter__(self) -> None:
        if not self.depth:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, _TAKE)
        self.depth += 1

    def __exit__(self, *exc: object) -> None:
        if self.depth == 1:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _GIVE)
        self.depth = max(self.depth - 1, 0)

    def give_all(self) -> None:
        """Give it back, however often it was taken."""
        if self.depth:
            self.depth = 1
            self.__exit__()

    def close(self) -> None:
        """Let go of the description, and so of the lock."""
        os.close(self._fd)


class Arena:
    """One world's shared memory, as one process sees it. fd: of the memfd."""

    def __init__(self, fd: int, size: int, *, make: bool = False) -> None:
        """size: how many ranks it has room for."""
        self.fd = fd
        self.size = size
        self._logs = HEADER_BYTES + TABLE_BYTES + KEY_BYTES
        self.start = self._logs + size * LOG_BYTES
        total = self.start + MEMORY_BYTES
        if make:
            os.ftruncate(fd, total)
        self._map = mmap.mmap(fd, total)
        self.view = memoryview(self._map)
        self.words = self.view[:HEADER_BYTES].cast("q")
        self._table = self.view[HEADER_BYTES : HEADER_BYTES + TABLE_BYTES].cast("q")
        keys = HEADER_BYTES + TABLE_BYTES
        self._keys = self.view[keys : keys + KEY_BYTES].cast("q")
        self.order = Order(fd)

    def again(self) -> Arena:
        """The same in a process that was forked: with a description of the lock of its own."""
        self.order = Order(self.fd)
        return self

    def reset(self) -> None:
        """Begin a new plan; nobody else may be using the arena."""
        used = self.words[USED]
        self.words[:] = memoryview(bytes(HEADER_BYTES)).cast("q")
        self.words[USED] = self.start
        for rank in range(self.size):
            self.words[STATE + rank] = RUNNING
        self._keys[:] = memoryview(bytes(KEY_BYTES)).cast("q")
        for rank in range(self.size):
            self._set_length(rank, 8)
        page = mmap.PAGESIZE
        keep = -(-(self.start + KEEP_BYTES) // page) * page
        if used > keep:
            self._map.madvise(mmap.MADV_REMOVE, keep, -(-(used - keep) // page) * page)

    def close(self) -> None:
        """Unmap; views that are still held keep the mapping."""
        self.order.close()

    # Memory -------------------------------------------------------------------------------------

    def take(self, nbytes: int) -> tuple[int, int]:
        """A new number, and the offset of `nbytes` bytes for it. Raises OutOfBounds when full."""
        with self.order:
            number = self.words[NUMBER]
            at = self.words[USED]
            after = at + -(-nbytes // ALIGN) * ALIGN
            if after > len(self.view) or number >= TABLE_SLOTS:
                raise OutOfBounds(
                    f"{nbytes} bytes more do not fit into the {MEMORY_BYTES} bytes, and {TABLE_SLOTS} "
                    "windows and buffers, that a world of processes shares"
                )
            self.words[NUMBER], self.words[USED] = number + 1, after
            self._table[2 * number], self._table[2 * number + 1] = at, nbytes
        return number, at

    def place(self, number: int) -> tuple[int, int]:
        """Offset and bytes of memory `number`."""
        return self._table[2 * number], self._table[2 * number + 1]

    def resize(self, number: int, nbytes: int) -> None:
        """Say that memory `number` has `nbytes` payload bytes a rank."""
        self._table[2 * number + 1] = nbytes

    def memory(self) -> bytes:
        """A copy of everything that windows and buffers hold."""
        return bytes(self.view[self.start : self.words[USED]])

    def put_back(self, memory: bytes) -> None:
        """Restore what `memory` gave."""
        self.view[self.start : self.start + len(memory)] = memory

    def region(self, at: int, nbytes: int, *, zero: bool | None = None, guards: bool = True) -> Region:
        """The region of `nbytes` payload bytes at `at`. zero: fill it with zeros, or with poison."""
        total = region_bytes(nbytes) if guards else nbytes
        return Region.within(self.view[at : at + total], nbytes, zero=zero, guards=guards)

    # Keys ---------------------------------------------------------------------------------------

    def key(self, key: Any) -> int:
        """The slot that belongs to a key; hold the lock. Its word is 0 at first."""
        digest = int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") >> 1 | 1
        slot = digest % KEY_SLOTS
        for _ in range(KEY_SLOTS):
            held = self._keys[2 * slot]
            if held == digest:
                return slot
            if not held:
                self._keys[2 * slot] = digest
                return slot
            slot = (slot + 1) % KEY_SLOTS
        raise EngineError(f"a world of processes knows {KEY_SLOTS} rendezvous and windows at most")

    def __getitem__(self, slot: int) -> int:
        return self._keys[2 * slot + 1]

    def __setitem__(self, slot: int, value: int) -> None:
        self._keys[2 * slot + 1] = value

    # Logs ---------------------------------------------------------------------------------------

    def _set_length(self, rank: int, length: int) -> None:
        at = self._logs + rank * LOG_BYTES
        self.view[at : at + 8] = _WORD.pack(length)

    def write(self, rank: int, length: int, data: bytes) -> int:
        """Append a record to a rank's log of `length` bytes; its new length."""
        at = self._logs + rank * LOG_BYTES
        end = length + 4 + len(data)
        if end > LOG_BYTES:
            raise EngineError(f"rank {rank} told more than {LOG_BYTES} bytes of events")
        self.view[at + length : at + length + 4] = _RECORD.pack(len(data))
        self.view[at + length + 4 : at + end] = data
        self.view[at : at + 8] = _WORD.pack(end)
        return end

    def read(self, rank: int, length: int) -> Iterator[tuple[int, list[Any]]]:
        """What was flushed behind byte `length` of a rank's log, each time with the length after it."""
        at = self._logs + rank * LOG_BYTES
        (end,) = _WORD.unpack(self.view[at : at + 8])
        while length < end:
            (size,) = _RECORD.unpack(self.view[at + length : at + length + 4])
            records = marshal.loads(self.view[at + length + 4 : at + length + 4 + size])
            length += 4 + size
            yield length, records


def region_bytes(nbytes: int) -> int:
    """What a region of `nbytes` payload bytes takes, guards and padding included."""
    return -(-(2 * GUARD_BYTES + nbytes + -nbytes % 8) // ALIGN) * ALIGN


class Telling:
    """A rank's log as its process writes it. Code objects are told once, then by number.

    What is told stands in the log after `flush`: together, since each record for itself costs as much
    as an operation.
    """

    def __init__(self, arena: Arena, rank: int) -> None:
        self._arena = arena
        self._rank = rank
        self._length = 8
        self._held: list[tuple[Any, ...]] = []
        self._codes: dict[int, tuple[int, CodeType]] = {}

    def tell(self, *record: Any) -> None:
        """Append a record: its kind, then values that marshal knows."""
        self._held.append(record)

    def flush(self) -> None:
        """Put what was told into the log."""
        self._length = self._arena.write(self._rank, self._length, marshal.dumps(self._held))
        self._held.clear()

    def code(self, code: CodeType | None) -> int:
        """The number of a code object; -1 for None."""
        if code is None:
            return -1
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = len(self._codes), code  # kept, so that its id stays its own
            self.tell("code", code)
        return known[0]


class Events:
    """What a rank's program appends its events to: they go into the log, each with its stamp.

    In natural order the event ends the operation for which `order` was taken.
    """

    def __init__(self, telling: Telling, arena: Arena, engine: Any) -> None:
        self._telling = telling
        self._arena = arena
        self._engine = engine
        self._count = 0

    def append(self, event: RawEvent) -> None:
        """Tell an event, with what the engine has noted for it."""
        engine = self._engine
        code = self._telling.code(event[8])
        awaited = engine.awaited.pop(self._count, None) if engine.awaited else None
        source = engine.sources.pop(event[7], None) if engine.sources else None
        if engine.natural:
            with self._arena.order:
                stamp = self._arena.words[STAMP]
                self._arena.words[STAMP] = stamp + 1
            self._arena.order.give_all()
            self._telling.tell("event", stamp, event[:8], code, event[9], awaited, source)
            self._telling.flush()
        else:
            self._telling.tell("event", -1, event[:8], code, event[9], awaited, source)
        self._count += 1

    def __len__(self) -> int:
        return self._count


class ArenaWindows(SharedWindows):
    """The windows of a world of processes, as one rank sees them.

    regions, names: by number, of those that this rank has met.
    """

    def __init__(self, arena: Arena, rank: int, size: int, telling: Telling) -> None:
        super().__init__(size)
        self._arena = arena
        self._rank = rank
        self._telling = telling
        self.regions: Any = {}
        self.names: Any = {}

    def add(
        self, kind: str, name: str, shape: tuple[int, ...], dtype: torch.dtype,
        regions: Sequence[Any],
    ) -> int:
        """Register memory of this process's own (a plain tensor in flight); returns its number."""
        number, _ = self._arena.take(0)
        self.know(number, kind, name, shape, dtype, regions)
        self._telling.tell(
            "memory", number, kind, name, shape, str(dtype), (self._rank,), -1, regions[self._rank].nbytes
        )
        return number

    def know(
        self, number: int, kind: str, name: str, shape: tuple[int, ...], dtype: torch.dtype, regions: Any
    ) -> None:
        """Enter memory under its number."""
        self.regions[number] = regions
        self.names[number] = kind, name, shape, dtype

    def own(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """A private buffer, in shared memory so that the record has it whatever becomes of the rank."""
        nbytes = math.prod(shape) * ITEMSIZE[dtype]
        number, at = self._arena.take(region_bytes(nbytes))
        region = self._arena.region(at, nbytes, zero=False)
        name = f"buffer{number}"
        self.know(number, "buffer", name, shape, dtype, {rank: region})
        self._telling.tell("memory", number, "buffer", name, shape, str(dtype), (rank,), at, nbytes)
        return number

    def collective(
        self, key: Any, name: str, shape: tuple[int, ...], dtype: torch.dtype,
        members: tuple[int, ...], *, zero: bool,
    ) -> int:
        """The window of a collective call: made by whoever comes first, the same for all."""
        arena = self._arena
        with arena.order:
            slot = arena.key(("memory", key))
            number = arena[slot] - 1
            nbytes = math.prod(shape) * ITEMSIZE[dtype]
            ranks = members or tuple(range(self.size))
            made = number < 0
            if made:
                number, at = arena.take(len(ranks) * region_bytes(nbytes))
                # Its size in the table is one rank's payload: all of them are alike.
                arena.resize(number, nbytes)
                arena[slot] = number + 1
            at, nbytes = arena.place(number)
            regions: list[Region | None] = [None] * self.size
            for index, rank in enumerate(ranks):
                regions[rank] = arena.region(
                    at + index * region_bytes(nbytes), nbytes, zero=zero if made else None
                )
        if made:
            self._telling.tell("memory", number, "window", name, shape, str(dtype), ranks, at, nbytes)
        self.know(number, "window", name, shape, dtype, regions)
        return number
