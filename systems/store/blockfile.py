"""A block's file: a header of one page, then the bytes. And how to read and write it whole.

Header (little endian): magic, version, id length, shard, shards, id, length, dtype, XXH3-64 of the
data, CRC-32 of the header. XXH3 misses one damage in 2**64 and is as fast as memory; neither is a
protection from somebody who forges. Short reads and writes are continued, interrupted
calls repeated. Direct I/O: what is aligned goes straight to and from the caller's memory, everything
else through an aligned bounce buffer whose tail is cleared; the file is then cut to its exact length.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
import xxhash

from systems.store.errors import BlockDamaged, BlockMismatch, DiskFailed
from systems.store.piece import page_aligned, view_of
from systems.store.ports import Disk

MAGIC = b"RFKVBLK\n"
VERSION = 1
HEADER_BYTES = 4096
BOUNCE_BYTES = 1 << 20
INTERRUPTED_MAX = 16
_FIELDS = struct.Struct("<8sHHII16sQ16sQ")
_CHECK = struct.Struct("<I")
_PADDING = bytes(HEADER_BYTES - _FIELDS.size - _CHECK.size)


def checksum(data: memoryview) -> int:
    """XXH3-64 of a block's data."""
    return xxhash.xxh3_64_intdigest(data)


class Header(NamedTuple):
    """What a file says of itself."""

    block_id: bytes
    shard: int
    shards: int
    length: int
    dtype: str
    checksum: int

    def pack(self) -> bytes:
        """One page."""
        begin = _FIELDS.pack(
            MAGIC, VERSION, len(self.block_id), self.shard, self.shards, self.block_id, self.length,
            self.dtype.encode(), self.checksum,
        )  # fmt: skip
        return (begin + _CHECK.pack(zlib.crc32(begin))).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def unpack(cls, page: memoryview) -> Header:
        """The header, or BlockDamaged."""
        begin = page[: _FIELDS.size]
        magic, version, _, shard, shards, block_id, length, dtype, checksum = _FIELDS.unpack(begin)
        if magic != MAGIC:
            raise BlockDamaged(f"no block file: it begins with {bytes(magic)!r}")
        (told,) = _CHECK.unpack_from(page, _FIELDS.size)
        if told != zlib.crc32(begin) or bytes(page[_FIELDS.size + _CHECK.size :]) != _PADDING:
            raise BlockDamaged("the header's checksum is wrong")
        if version != VERSION:
            raise BlockDamaged(f"format version {version}; this store reads {VERSION}")
        return cls(block_id, shard, shards, length, dtype.rstrip(b"\0").decode(), checksum)


class Files:
    """Reads and writes whole block files on a disk, buffered or direct."""

    def __init__(self, disk: Disk, alignment: int, *, direct: bool) -> None:
        self._disk = disk
        self._unit = alignment
        self._direct = os.O_DIRECT if direct else 0
        self._bounce: deque[torch.Tensor] = deque()

    def create(self, path: str, header: Header, data: memoryview, address: int, *, sync: bool) -> None:
        """Write a new file; on any error it is removed again, as far as the disk allows."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | self._direct
        fd = self._disk.open(path, flags)
        try:
            try:
                self._fill(fd, header, data, address)
                if sync:
                    self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
        except Exception:  # not when a worker is torn down: a dead process cleans up nothing
            with contextlib.suppress(OSError):  # a temporary name is invisible; reclaimed by age
                self._disk.unlink(path)
            raise

    def read(
        self, path: str, expected: tuple[bytes, int], into: memoryview, dtype: str, address: int
    ) -> None:
        """Fill `into` from the file of (id, shard), verified; BlockDamaged or BlockMismatch otherwise."""
        fd = self._disk.open(path, os.O_RDONLY | self._direct)
        try:
            header = self._header(fd)
            if (header.block_id, header.shard) != expected:
                raise BlockDamaged(
                    f"the file holds block {header.block_id.hex()} shard {header.shard}, another one"
                )
            if header.length != len(into) or header.dtype != dtype:
                raise BlockMismatch(
                    f"the block is {header.length} bytes of {header.dtype};"
                    f" the destination {len(into)} bytes of {dtype}"
                )
            self._move(fd, into, address, write=False)
        finally:
            self._disk.close(fd)
        if checksum(into) != header.checksum:
            raise BlockDamaged("the data's checksum is wrong")

    def header(self, path: str) -> Header:
        """A file's header alone."""
        fd = self._disk.open(path, os.O_RDONLY | self._direct)
        try:
            return self._header(fd)
        finally:
            self._disk.close(fd)

    def _header(self, fd: int) -> Header:
        page = self._lend()
        try:
            view = view_of(page)[:HEADER_BYTES]
            got = self._all(lambda rest, at: self._disk.pread(fd, rest, at), view, 0)
            if got < HEADER_BYTES:
                raise BlockDamaged(f"cut short: {got} bytes, less than a header")
            return Header.unpack(view)
        finally:
            self._bounce.append(page)

    def _fill(self, fd: int, header: Header, data: memoryview, address: int) -> None:
        page = self._lend()
        try:
            view = view_of(page)[:HEADER_BYTES]
            view[:] = header.pack()
            self._put(fd, view, 0)
        finally:
            self._bounce.append(page)
        self._move(fd, data, address, write=True)

    def _move(self, fd: int, data: memoryview, address: int, *, write: bool) -> None:
        """The bytes after the header: straight where direct I/O allows it, bounced otherwise."""
        straight = len(data)
        if self._direct:
            straight = 0 if address % self._unit else len(data) // self._unit * self._unit
        if straight:
            view = data[:straight]
            self._put(fd, view, HEADER_BYTES) if write else self._get(fd, view, HEADER_BYTES)
        at = straight
        while at < len(data):
            part = data[at : at + BOUNCE_BYTES]
            self._bounced(fd, part, HEADER_BYTES + at, write=write)
            at += len(part)
        if write and self._direct and len(data) % self._unit:
            self._disk.truncate(fd, HEADER_BYTES + len(data))

    def _bounced(self, fd: int, part: memoryview, at: int, *, write: bool) -> None:
        page = self._lend()
        try:
            padded = -(-len(part) // self._unit) * self._unit
            view = view_of(page)[:padded]
            if write:
                view[: len(part)] = part
                view[len(part) :] = bytes(padded - len(part))
                self._put(fd, view, at)
            else:
                self._get(fd, view, at, least=len(part))
                part[:] = view[: len(part)]
        finally:
            self._bounce.append(page)

    def _put(self, fd: int, view: memoryview, at: int) -> None:
        put = self._all(lambda rest, offset: self._disk.pwrite(fd, rest, offset), view, at)
        if put < len(view):
            raise DiskFailed(f"write stopped after {put} of {len(view)} bytes", 5)

    def _get(self, fd: int, view: memoryview, at: int, least: int | None = None) -> None:
        least = len(view) if least is None else least
        got = self._all(lambda rest, offset: self._disk.pread(fd, rest, offset), view, at, least)
        if got < least:
            raise BlockDamaged(f"cut short: {got} of {least} bytes at {at}")

    def _all(
        self, move: Callable[[memoryview, int], int], view: memoryview, at: int, least: int | None = None
    ) -> int:
        """Repeat `move` until `least` bytes are moved or none is; how many were.

        A short direct transfer may end anywhere; the next one must begin aligned, so it goes back.
        """
        done, interrupted = 0, 0
        least = len(view) if least is None else least
        while done < least:
            back = done % self._unit if self._direct else 0
            try:
                count = move(view[done - back :] if done else view, at + done - back)
            except InterruptedError:
                interrupted += 1
                if interrupted > INTERRUPTED_MAX:
                    raise
                continue
            if count <= back:
                break
            done += count - back
        return done

    def _lend(self) -> torch.Tensor:
        try:
            return self._bounce.pop()
        except IndexError:
            return page_aligned(BOUNCE_BYTES)
