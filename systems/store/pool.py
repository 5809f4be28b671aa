"""The Cache stage's private pool: bounded, in aligned buffers; the least recently used go first.

A node is one cached (id, shard). Who works with a node holds it; a held node is never evicted and its
buffer never reused. Who finds a node that another is filling waits for that one's outcome. Where nothing
can be freed there is no node, and the caller goes past the cache. Pinned where CUDA is in use. Its lock
is never held across an operation of a port. Not modelled: that torch rounds pinned memory up to powers
of two, so that a pool of other sizes takes more than it counts; fragmentation: buffers are of whole
pages, and one of another size is given up before a new one is made.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

import torch

from systems.store.errors import StoreError
from systems.store.piece import Piece, page_aligned
from systems.store.ports import Event, Executor
from systems.store.real import Lock
from systems.store.stage import Key

PAGE = 4096


class Node:
    """One cached (id, shard): its buffer, who holds it, and how its filling ended."""

    def __init__(self, key: Key, buffer: torch.Tensor, length: int, dtype: str) -> None:
        self.key = key
        self.buffer = buffer
        self.piece = Piece.of(buffer, buffer.data_ptr(), 0, length, dtype)
        self.holders = 1
        self.filled: Event | None = None  # set when `piece` is filled or `error` says why not
        self.error: StoreError | None = None

    @property
    def fits(self) -> tuple[int, str]:
        """Length and dtype of what is cached."""
        return self.piece.length, self.piece.dtype


class Pool(Protocol):
    """What the Cache stage asks of a pool; a node that it hands out is held by the caller."""

    shared: bool  # whether other stores' loads and dumps are in it, too

    def find(self, key: Key, length: int, dtype: str, *, own: bool) -> tuple[Node | None, bool]:
        """The node of `key`, and whether the caller is the one to fill it; (None, False) without room.

        own: what this store dumped and nobody else may see yet.
        """

    def take(self, key: Key, length: int, dtype: str) -> Node | None:
        """A node to fill that nobody can find yet; None without room."""

    def outcome(self, node: Node) -> StoreError | None:
        """Wait until a found node is filled; None, or why it was not."""

    def succeeded(self, node: Node) -> None:
        """The node that was to be filled is."""

    def failed(self, node: Node, error: StoreError) -> None:
        """It could not be filled: nobody finds it any more, and whoever waits for it learns why."""

    def replace(self, node: Node) -> None:
        """A taken node is what is cached of its key from now on."""

    def discard(self, key: Key) -> None:
        """Nothing of this store is cached of `key` any more; who holds it keeps it until let go."""

    def publish(self, key: Key) -> None:
        """It was committed: others may see what this store dumped of it."""

    def let_go(self, node: Node) -> None:
        """The caller does not use the node's buffer any more."""

    def close(self) -> None:
        """Give the memory back."""


class PrivatePool:
    """A pool of one store."""

    shared = False

    def __init__(self, limit: int, executor: Executor) -> None:
        self._executor = executor
        self._limit = limit
        self._used = 0  # bytes of all buffers, cached or free
        self._free: dict[int, list[torch.Tensor]] = {}
        self._nodes: OrderedDict[Key, Node] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Key, length: int, dtype: str, *, own: bool) -> tuple[Node | None, bool]:
        """See Pool. What is private to a store needs no mark here."""
        with self._lock:
            node = self._held(key)
        if node is not None:
            return node, False
        fresh = self.take(key, length, dtype)
        if fresh is None:
            return None, False
        fresh.filled = self._executor.event()
        with self._lock:
            node = self._held(key)
            if node is None:
                self._nodes[key] = fresh
        if node is None:
            return fresh, True
        self.let_go(fresh)
        return node, False

    def _held(self, key: Key) -> Node | None:
        """The node of `key`, now held once more and used last; the lock is held."""
        node = self._nodes.get(key)
        if node is not None:
            node.holders += 1
            self._nodes.move_to_end(key)
        return node

    def take(self, key: Key, length: int, dtype: str) -> Node | None:
        """See Pool."""
        size = -(-length // PAGE) * PAGE
        with self._lock:
            buffer = self._room(size)
        if buffer is None:
            return None
        if not buffer.numel():
            try:
                buffer = _fresh(size)
            except BaseException:
                with self._lock:
                    self._used -= size
                raise
        return Node(key, buffer, length, dtype)

    def _room(self, size: int) -> torch.Tensor | None:
        """A free buffer of `size`, an empty tensor for "allocate one", or None; the lock is held."""
        if size > self._limit:
            return None
        if self._free.get(size):
            return self._free[size].pop()
        for other in list(self._free):
            while self._free[other] and self._used + size > self._limit:
                self._free[other].pop()
                self._used -= other
        while self._used + size > self._limit:
            node = self._victim()
            if node is None:
                return None
            del self._nodes[node.key]
            if node.buffer.numel() == size:
                return node.buffer
            self._used -= node.buffer.numel()
        self._used += size
        return torch.empty(0, dtype=torch.uint8)

    def _victim(self) -> Node | None:
        """The node that was used longest ago, of those that may go; the lock is held."""
        return next((node for node in self._nodes.values() if self._evictable(node)), None)

    def _evictable(self, node: Node) -> bool:
        """Nobody works with it."""
        return not node.holders

    def outcome(self, node: Node) -> StoreError | None:
        """See Pool."""
        if node.filled is not None:
            node.filled.wait(None)
        return node.error

    def succeeded(self, node: Node) -> None:
        """See Pool."""
        self._tell(node)

    def failed(self, node: Node, error: StoreError) -> None:
        """See Pool."""
        node.error = error
        self._forget(node)
        self._tell(node)

    def _forget(self, node: Node) -> None:
        """Nobody finds the node any more."""
        with self._lock:
            if self._nodes.get(node.key) is node:
                del self._nodes[node.key]

    def _tell(self, node: Node) -> None:
        """Whoever waits for the node goes on."""
        if node.filled is not None:
            node.filled.set()

    def replace(self, node: Node) -> None:
        """See Pool."""
        with self._lock:
            old = self._nodes.pop(node.key, None)
            self._nodes[node.key] = node
            if old is not None:
                self._reuse(old)

    def discard(self, key: Key) -> None:
        """See Pool."""
        with self._lock:
            old = self._nodes.pop(key, None)
            if old is not None:
                self._reuse(old)

    def publish(self, key: Key) -> None:
        """See Pool. There are no others."""

    def let_go(self, node: Node) -> None:
        """See Pool."""
        with self._lock:
            node.holders -= 1
            if self._nodes.get(node.key) is not node:
                self._reuse(node)

    def _reuse(self, node: Node) -> None:
        """The buffer of a node in no table is free once nobody holds it; the lock is held."""
        if not node.holders:
            self._free.setdefault(node.buffer.numel(), []).append(node.buffer)

    def close(self) -> None:
        """See Pool."""
        with self._lock:
            self._nodes.clear()
            self._free.clear()


def _fresh(size: int) -> torch.Tensor:
    if torch.cuda.is_available():
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return page_aligned(size)
