"""The shared pool's file: a page that says its geometry, a table of slots, the slots' memory.

A slot belongs to one set of slots, and a block to one set; whoever changes entries of a set holds the
set's lock. An entry's `state` is changed last when it is filled in and first when it is emptied, so what
a killed process leaves half done is an entry that is not ready. Bytes for locks: one a set, one a slot.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from typing import NamedTuple

import numpy as np
import torch

from systems.store.errors import ConfigError
from systems.store.stage import Key

MAGIC = b"RFKVPOOL"
VERSION = 1
PAGE = 4096
WAYS = 256  # slots a set; a pool of no more is one set and evicts in the exact order of use
EMPTY, TAKEN, FILLING, READY = range(4)
_HEAD = struct.Struct("<8sQQQ")
_NUMBER = struct.Struct("<Q")
_NUMBER_AT = 64
_SETS_AT, _SLOTS_AT = 1 << 20, 1 << 40  # lock bytes; a lock may lie behind the end of a file
_ENTRY = np.dtype(
    [("first", "<u8"), ("second", "<u8"), ("shard", "<u4"), ("state", "<u4"), ("length", "<u8"),
     ("owner", "<u8"), ("stamp", "<u8"), ("dtype", "S16")]
)  # fmt: skip


class Geometry(NamedTuple):
    """What all who share a pool must agree on."""

    slot_bytes: int
    slots: int

    @classmethod
    def of(cls, block_size: int, cache_bytes: int) -> Geometry:
        """As many slots as there is room for, in whole sets."""
        slot_bytes = -(-block_size // PAGE) * PAGE
        slots = max(cache_bytes // slot_bytes, 1)
        return cls(slot_bytes, slots if slots <= WAYS else slots // WAYS * WAYS)

    @property
    def table_bytes(self) -> int:
        """The table, in whole pages."""
        return -(-self.slots * _ENTRY.itemsize // PAGE) * PAGE

    @property
    def file_bytes(self) -> int:
        """All of the file."""
        return PAGE + self.table_bytes + self.slots * self.slot_bytes


class Table:
    """The mapped file of a pool."""

    def __init__(self, mapped: mmap.mmap, geometry: Geometry) -> None:
        self.geometry = geometry
        self._mapped = mapped
        self.ways = min(WAYS, geometry.slots)
        self.entries = np.frombuffer(mapped, _ENTRY, geometry.slots, PAGE)
        begin = PAGE + geometry.table_bytes
        self.memory = torch.frombuffer(
            mapped, dtype=torch.uint8, offset=begin, count=geometry.slots * geometry.slot_bytes
        )

    @staticmethod
    def write_head(mapped: mmap.mmap, geometry: Geometry) -> None:
        """A new file says what it is."""
        mapped[: _HEAD.size] = _HEAD.pack(MAGIC, VERSION, *geometry)

    @staticmethod
    def require_geometry(mapped: mmap.mmap, geometry: Geometry, name: str) -> None:
        """The file is a pool of just this geometry, or ConfigError."""
        magic, version, slot_bytes, slots = _HEAD.unpack(mapped[: _HEAD.size])
        if (magic, version) != (MAGIC, VERSION):
            raise ConfigError(f"cache_shared: {name} is in use and is no pool of this version")
        if (slot_bytes, slots) != geometry:
            raise ConfigError(
                f"cache_shared: given {geometry.slots} buffers of {geometry.slot_bytes} bytes (from"
                f" cache_bytes and block_size); allowed what the pool {name} in use has:"
                f" {slots} of {slot_bytes}"
            )

    def next_number(self) -> int:
        """A number that no store of this pool had before; the set-up is locked."""
        (number,) = _NUMBER.unpack_from(self._mapped, _NUMBER_AT)
        _NUMBER.pack_into(self._mapped, _NUMBER_AT, number + 1)
        return int(number) + 1

    def set_of(self, key: Key) -> int:
        """The number of the key's set."""
        return zlib.crc32(key[0], key[1]) % (self.geometry.slots // self.ways)

    def set_lock(self, number: int) -> int:
        """The byte that locks a set."""
        return _SETS_AT + number

    def slot_lock(self, slot: int) -> int:
        """The byte that whoever works with a slot holds: shared to read, alone to fill."""
        return _SLOTS_AT + slot

    def buffer(self, slot: int) -> torch.Tensor:
        """A slot's memory."""
        size = self.geometry.slot_bytes
        return self.memory[slot * size : (slot + 1) * size]

    def named(self, key: Key) -> list[int]:
        """The slots of the key's set that are filled, or being filled, with `key`."""
        begin = self.set_of(key) * self.ways
        part = self.entries[begin : begin + self.ways]
        first, second = np.frombuffer(key[0], "<u8")
        same = (part["first"] == first) & (part["second"] == second) & (part["shard"] == key[1])
        return [begin + int(at) for at in np.flatnonzero(same & (part["state"] >= FILLING))]

    def oldest(self, key: Key) -> list[int]:
        """All slots of the key's set: empty ones first, then those used longest ago."""
        begin = self.set_of(key) * self.ways
        part = self.entries[begin : begin + self.ways]
        order = np.argsort(np.where(part["state"] == EMPTY, 0, part["stamp"] + 1), kind="stable")
        return [begin + int(at) for at in order]

    def name(self, slot: int, key: Key, fits: tuple[int, str], owner: int, state: int) -> None:
        """What the slot is from now on; owner 0: everybody's."""
        entry = self.entries[slot]
        entry["state"] = EMPTY
        entry["first"], entry["second"] = np.frombuffer(key[0], "<u8")
        entry["shard"], entry["length"], entry["dtype"] = key[1], fits[0], fits[1].encode()
        entry["owner"] = owner
        self.use(slot)
        entry["state"] = state

    def use(self, slot: int) -> None:
        """It is the one of its set that was used last."""
        begin = slot // self.ways * self.ways
        self.entries[slot]["stamp"] = self.entries["stamp"][begin : begin + self.ways].max() + 1

    def state(self, slot: int) -> int:
        """EMPTY, TAKEN (a dump fills it, nobody may find it), FILLING or READY."""
        return int(self.entries[slot]["state"])

    def owner(self, slot: int) -> int:
        """The number of the only store that may see it, or 0."""
        return int(self.entries[slot]["owner"])

    def fits(self, slot: int) -> tuple[int, str]:
        """Length and dtype of what is in it."""
        entry = self.entries[slot]
        return int(entry["length"]), bytes(entry["dtype"]).decode()

    def is_named(self, slot: int, key: Key) -> bool:
        """Whether the slot is still that of `key`."""
        return slot in self.named(key)
