"""A pool that the ranks of a host share: several processes, one bounded number of bytes.

All stores with one `cache_shared` name use it; `block_size` and `cache_bytes` must agree. Who works with
a slot holds its lock, so it is neither evicted nor reused under a running load or dump of any process,
and a killed holder holds nothing. The lock held alone says "being filled": whoever wants the same block
waits for it, and where the filler failed or died loads the block itself. What a store dumped and has not
committed is its own; others find it once it is committed. In each set of up to 256 slots the one used
longest ago goes first. The file is made anew by the first store that finds nobody attached, and removed
by the last one that closes. Not modelled: NUMA, pinned memory; one id whose contents change while it is
loaded in one process and dumped in another (blocks are content-addressed).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from systems.store.config import StoreConfig
from systems.store.errors import StoreError
from systems.store.pool import Node
from systems.store.shared_file import Handle, SharedFile
from systems.store.shared_table import EMPTY, FILLING, READY, TAKEN, Geometry, Table
from systems.store.stage import Key

EVERYBODY = 0


class Found(NamedTuple):
    """A slot, and what the caller holds of it."""

    slot: int
    how: str  # "ready": held shared; "fill": held alone; "wait": not held, somebody fills it


class SharedNode(Node):
    """A slot in use, and the handle whose lock says so."""

    def __init__(self, table: Table, slot: int, key: Key, fits: tuple[int, str], handle: Handle) -> None:
        super().__init__(key, table.buffer(slot), *fits)
        self.slot = slot
        self.handle = handle


class SharedPool:
    """One store's part in a pool of several."""

    shared = True

    def __init__(self, config: StoreConfig) -> None:
        geometry = Geometry.of(config.block_size, config.cache_bytes)
        self._file = SharedFile(config.cache_shared)
        if self._file.alone():
            self._file.make(geometry.file_bytes)
            mapped = self._file.mapped()
            Table.write_head(mapped, geometry)
        else:
            mapped = self._file.mapped()
            try:
                Table.require_geometry(mapped, geometry, config.cache_shared)
            except StoreError:
                self._file.abandon()
                raise
        self._table = Table(mapped, geometry)
        self._number = self._table.next_number()
        self._file.attach()

    @property
    def slots(self) -> int:
        """Buffers."""
        return self._table.geometry.slots

    def find(self, key: Key, length: int, dtype: str, *, own: bool) -> tuple[Node | None, bool]:
        """See Pool."""
        if length > self._table.geometry.slot_bytes:
            return None, False
        handle = self._file.lend()
        try:
            while True:
                with self._locked(handle, key):
                    found = self._look(handle, key, (length, dtype), own=own)
                if found is None:
                    self._file.give_back(handle)
                    return None, False
                if found.how == "wait":
                    found = self._awaited(handle, found.slot, key)
                if found is not None:
                    fits = self._table.fits(found.slot)
                    return SharedNode(self._table, found.slot, key, fits, handle), found.how == "fill"
        except BaseException:
            self._file.forget(handle)
            raise

    @contextmanager
    def _locked(self, handle: Handle, key: Key) -> Iterator[None]:
        """The key's set is nobody else's; short, and never while waiting for a slot."""
        at = self._table.set_lock(self._table.set_of(key))
        handle.own(at)
        try:
            yield
        finally:
            handle.release(at)

    def _look(self, handle: Handle, key: Key, fits: tuple[int, str], *, own: bool) -> Found | None:
        """The slot of `key`, or one to fill; the set is locked."""
        slot = self._match(key)
        if slot is None:
            slot = self._room(handle, key)
            if slot is None:
                return None
        elif self._table.state(slot) == READY:
            self._table.use(slot)
            held = handle.share(self._table.slot_lock(slot), wait=False)
            return Found(slot, "ready" if held else "wait")
        elif not handle.own(self._table.slot_lock(slot), wait=False):
            return Found(slot, "wait")
        # A new slot, or one whose filler died.
        self._table.name(slot, key, fits, self._number if own else EVERYBODY, FILLING)
        return Found(slot, "fill")

    def _match(self, key: Key) -> int | None:
        """The slot that a load of this store may use: its own dump's before everybody's."""
        slots = self._table.named(key)
        for owner in (self._number, EVERYBODY):
            for slot in slots:
                if self._table.owner(slot) == owner:
                    return slot
        return None

    def _room(self, handle: Handle, key: Key) -> int | None:
        """A slot that nobody works with, now held alone; the set is locked."""
        for slot in self._table.oldest(key):
            if self._evictable(handle, slot):
                return slot
        return None

    def _evictable(self, handle: Handle, slot: int) -> bool:
        """Nobody works with it, in any process; held alone from now on."""
        return handle.own(self._table.slot_lock(slot), wait=False)

    def _awaited(self, handle: Handle, slot: int, key: Key) -> Found | None:
        """Wait for who fills the slot; None where that one failed or died."""
        handle.share(self._table.slot_lock(slot))
        with self._locked(handle, key):
            if self._table.is_named(slot, key) and self._table.state(slot) == READY:
                return Found(slot, "ready")
        handle.release(self._table.slot_lock(slot))
        return None

    def take(self, key: Key, length: int, dtype: str) -> Node | None:
        """See Pool."""
        if length > self._table.geometry.slot_bytes:
            return None
        handle = self._file.lend()
        try:
            with self._locked(handle, key):
                slot = self._room(handle, key)
                if slot is not None:
                    self._table.name(slot, key, (length, dtype), self._number, TAKEN)
        except BaseException:
            self._file.forget(handle)
            raise
        if slot is None:
            self._file.give_back(handle)
            return None
        return SharedNode(self._table, slot, key, (length, dtype), handle)

    def outcome(self, node: Node) -> StoreError | None:
        """See Pool. `find` has waited already."""
        return node.error

    def succeeded(self, node: Node) -> None:
        """See Pool. From now on others may read it, too."""
        one = _shared(node)
        with self._locked(one.handle, node.key):
            if self._table.is_named(one.slot, node.key):
                self._table.entries[one.slot]["state"] = READY
        one.handle.share(self._table.slot_lock(one.slot))

    def failed(self, node: Node, error: StoreError) -> None:
        """See Pool. Whoever waits finds it empty when the lock goes, and loads itself."""
        node.error = error
        self._empty(_shared(node).slot)

    def _empty(self, slot: int) -> None:
        """Nobody finds the slot any more."""
        self._table.entries[slot]["state"] = EMPTY

    def replace(self, node: Node) -> None:
        """See Pool. Own until the block is committed."""
        one = _shared(node)
        with self._locked(one.handle, node.key):
            self._unname(node.key, self._number)
            self._table.entries[one.slot]["state"] = READY

    def _unname(self, key: Key, owner: int) -> None:
        """What `owner` had of `key` is found no more; the set is locked."""
        for slot in self._table.named(key):
            if self._table.owner(slot) == owner:
                self._empty(slot)

    def discard(self, key: Key) -> None:
        """See Pool. What everybody may see stays: it is what is committed."""
        self._changed(key, publish=False)

    def _give_to_everybody(self, key: Key) -> None:
        """What this store has of `key` takes the place of what was committed; the set is locked."""
        self._unname(key, EVERYBODY)
        for slot in self._table.named(key):
            if self._table.owner(slot) == self._number:
                self._table.entries[slot]["owner"] = EVERYBODY

    def publish(self, key: Key) -> None:
        """See Pool. What was committed before is found no more."""
        self._changed(key, publish=True)

    def _changed(self, key: Key, *, publish: bool) -> None:
        """What this store has of `key` is everybody's from now on, or nobody's."""
        handle = self._file.lend()
        try:
            with self._locked(handle, key):
                if publish:
                    self._give_to_everybody(key)
                else:
                    self._unname(key, self._number)
        except BaseException:
            self._file.forget(handle)
            raise
        self._file.give_back(handle)

    def let_go(self, node: Node) -> None:
        """See Pool."""
        one = _shared(node)
        one.handle.release(self._table.slot_lock(one.slot))
        self._file.give_back(one.handle)

    def close(self) -> None:
        """See Pool."""
        self._file.close()


def _shared(node: Node) -> SharedNode:
    assert isinstance(node, SharedNode)
    return node
