"""A block's file, a header of one page and then the bytes: how to read and write it whole.

Short reads and writes are continued, interrupted calls repeated. Direct I/O: what is aligned goes
straight to and from the caller's memory, everything else through an aligned bounce buffer whose tail
is cleared; the file is then cut to its exact length.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch

from systems.store import header as headers
from systems.store.errors import BlockDamaged, DiskFailed
from systems.store.header import HEADER_BYTES, Header
from systems.store.piece import page_aligned, view_of
from systems.store.ports import Disk

BOUNCE_BYTES = 1 << 20
INTERRUPTED_MAX = 16


def require_written(count: int, length: int) -> None:
    """All of `length` bytes were taken, or DiskFailed."""
    if count < length:
        raise DiskFailed(f"write stopped after {count} of {length} bytes", 5)


def require_read(count: int, least: int, at: int) -> None:
    """At least `least` bytes came, or BlockDamaged."""
    if count < least:
        raise BlockDamaged(f"cut short: {count} of {least} bytes at {at}")


def clear_tail(view: memoryview, used: int) -> None:
    """What an earlier block left in a bounce buffer behind `used` bytes reaches no file."""
    view[used:] = bytes(len(view) - used)


class Bounce(NamedTuple):
    """An aligned buffer and the view of it."""

    memory: torch.Tensor
    view: memoryview


class Files:
    """Reads and writes whole block files on a disk, buffered or direct."""

    def __init__(self, disk: Disk, alignment: int, *, direct: bool) -> None:
        self._disk = disk
        self._unit = alignment
        self._direct = os.O_DIRECT if direct else 0
        self._bounce: deque[Bounce] = deque()

    def create(self, path: str, header: Header, data: memoryview, address: int, *, sync: bool) -> None:
        """Write a new file; on any error the caller removes what there is of it."""
        fd = self._disk.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | self._direct)
        try:
            self._write_header(fd, header)
            self._move(fd, data, address, write=True)
            if sync:
                self._make_durable(fd)
        finally:
            self._disk.close(fd)

    def read(self, path: str, key: tuple[bytes, int], into: memoryview, dtype: str, address: int) -> None:
        """Fill `into` from the file of `key` (id, shard), verified; BlockDamaged or BlockMismatch."""
        fd = self._disk.open(path, os.O_RDONLY | self._direct)
        try:
            header = self._read_header(fd)
            headers.require_identity(header, key)
            headers.require_fit((header.length, header.dtype), len(into), dtype)
            self._move(fd, into, address, write=False)
        finally:
            self._disk.close(fd)
        headers.require_intact(header, into)

    def header(self, path: str) -> Header:
        """A file's header alone."""
        fd = self._disk.open(path, os.O_RDONLY | self._direct)
        try:
            return self._read_header(fd)
        finally:
            self._disk.close(fd)

    def _make_durable(self, fd: int) -> None:
        self._disk.fsync(fd)

    def _read_header(self, fd: int) -> Header:
        page = self._lend()
        try:
            view = page.view[:HEADER_BYTES]
            self._get(fd, view, 0, HEADER_BYTES)
            return Header.unpack(view)
        finally:
            self._give_back(page)

    def _write_header(self, fd: int, header: Header) -> None:
        page = self._lend()
        try:
            view = page.view[:HEADER_BYTES]
            view[:] = header.pack()
            self._put(fd, view, 0)
        finally:
            self._give_back(page)

    def _move(self, fd: int, data: memoryview, address: int, *, write: bool) -> None:
        """The bytes after the header: straight where direct I/O allows it, bounced otherwise."""
        straight = self._straight(len(data), address)
        if straight:
            view = data[:straight]
            self._put(fd, view, HEADER_BYTES) if write else self._get(fd, view, HEADER_BYTES, straight)
        at = straight
        while at < len(data):
            part = data[at : at + BOUNCE_BYTES]
            if write:
                self._put_bounced(fd, part, HEADER_BYTES + at)
            else:
                self._get_bounced(fd, part, HEADER_BYTES + at)
            at += len(part)
        if write and self._direct and len(data) % self._unit:
            self._disk.truncate(fd, HEADER_BYTES + len(data))

    def _straight(self, length: int, address: int) -> int:
        """How many bytes from the first need no bounce buffer."""
        if not self._direct:
            return length
        return 0 if address % self._unit else length // self._unit * self._unit

    def _padded(self, length: int) -> int:
        return -(-length // self._unit) * self._unit

    def _put_bounced(self, fd: int, part: memoryview, at: int) -> None:
        page = self._lend()
        try:
            view = page.view[: self._padded(len(part))]
            view[: len(part)] = part
            clear_tail(view, len(part))
            self._put(fd, view, at)
        finally:
            self._give_back(page)

    def _get_bounced(self, fd: int, part: memoryview, at: int) -> None:
        page = self._lend()
        try:
            view = page.view[: self._padded(len(part))]
            self._get(fd, view, at, len(part))
            part[:] = view[: len(part)]
        finally:
            self._give_back(page)

    def _put(self, fd: int, view: memoryview, at: int) -> None:
        put = self._all(self._disk.pwrite, fd, view, at, len(view))
        require_written(put, len(view))

    def _get(self, fd: int, view: memoryview, at: int, least: int) -> None:
        got = self._all(self._disk.pread, fd, view, at, least)
        require_read(got, least, at)

    def _all(
        self, move: Callable[[int, memoryview, int], int], fd: int, view: memoryview, at: int, least: int
    ) -> int:
        """Repeat `move` until `least` bytes are moved or none is; how many were.

        A short direct transfer may end anywhere; the next one must begin aligned, so it goes back.
        """
        done, interrupted = 0, 0
        while done < least:
            back = done % self._unit if self._direct else 0
            try:
                count = move(fd, view[done - back :] if done else view, at + done - back)
            except InterruptedError:
                interrupted += 1
                if interrupted > INTERRUPTED_MAX:
                    raise
                continue
            if count <= back:
                break
            done += count - back
        return done

    def _lend(self) -> Bounce:
        """A bounce buffer that nobody else has."""
        try:
            return self._bounce.pop()
        except IndexError:
            memory = page_aligned(BOUNCE_BYTES)
            return Bounce(memory, view_of(memory))

    def _give_back(self, page: Bounce) -> None:
        """Only when no operation uses the buffer any more."""
        self._bounce.append(page)
