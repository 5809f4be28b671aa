"""What a block's file says of itself: one page, and whether it is the block that was asked for.

Little endian: magic, version, id length, shard, shards, id, length, dtype, XXH3-64 of the data, CRC-32 of
what precedes it, zeros. XXH3 misses one damage in 2**64 and is as fast as memory; neither is a
protection from somebody who forges.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import xxhash

from systems.store.errors import BlockDamaged, BlockMismatch

MAGIC = b"RFKVBLK\n"
VERSION = 1
HEADER_BYTES = 4096
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
        require_header_intact(page, begin)
        if version != VERSION:
            raise BlockDamaged(f"format version {version}; this store reads {VERSION}")
        return cls(block_id, shard, shards, length, dtype.rstrip(b"\0").decode(), checksum)


def require_header_intact(page: memoryview, begin: memoryview) -> None:
    """The page's own checksum is right and nothing stands behind it, or BlockDamaged."""
    (told,) = _CHECK.unpack_from(page, _FIELDS.size)
    if told != zlib.crc32(begin) or bytes(page[_FIELDS.size + _CHECK.size :]) != _PADDING:
        raise BlockDamaged("the header's checksum is wrong")


def require_identity(header: Header, key: tuple[bytes, int]) -> None:
    """The file is that of `key` (id, shard), or BlockDamaged."""
    if (header.block_id, header.shard) != key:
        raise BlockDamaged(
            f"the file holds block {header.block_id.hex()} shard {header.shard}, another one"
        )


def require_fit(given: tuple[int, str], length: int, dtype: str) -> None:
    """`given` (length, dtype) fits a destination of `length` bytes of `dtype`, or BlockMismatch."""
    if given != (length, dtype):
        raise BlockMismatch(
            f"the block is {given[0]} bytes of {given[1]}; the destination {length} bytes of {dtype}"
        )


def require_intact(header: Header, data: memoryview) -> None:
    """The data is what was dumped, or BlockDamaged."""
    if checksum(data) != header.checksum:
        raise BlockDamaged("the data's checksum is wrong")
