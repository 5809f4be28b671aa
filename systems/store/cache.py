"""The Cache stage: a bounded pool of aligned buffers over the lower stage.

Written through: a dump is done when the lower stage has it, so dumped and persisted are one thing.
Lookups are the lower stage's. A buffer that a running load or dump holds is never evicted nor reused;
where none is free the operation goes past the cache, so a pool smaller than a batch works. Whoever
waits for another's load gets its error. Pinned where CUDA is in use. One pool a store object: not
shared between processes. Blocks are content-addressed: another process replacing a block under the same
id is not noticed.
"""

from __future__ import annotations

from collections import OrderedDict

import torch

from systems.store.config import StoreConfig
from systems.store.errors import BlockMismatch, StoreError
from systems.store.front import BlockStore
from systems.store.log import CACHE
from systems.store.piece import Piece, page_aligned
from systems.store.ports import Disk, Event, Executor
from systems.store.posix import PosixStage
from systems.store.real import Lock
from systems.store.stage import Dump, Key, Stage

PAGE = 4096
TYPICAL_BYTES = 1 << 20  # a buffer, for the log line, where block_size does not say


class Node:
    """One cached (id, shard): its buffer, who holds it, and how its filling ended."""

    def __init__(self, key: Key, buffer: torch.Tensor, length: int, dtype: str) -> None:
        self.key = key
        self.buffer = buffer
        self.piece = Piece(buffer[:length])
        self.piece.dtype = dtype
        self.holders = 1
        self.filled: Event | None = None  # set when `piece` is filled or `error` says why not
        self.error: StoreError | None = None


class CacheStage:
    """LRU over nodes that nobody holds."""

    name = "Cache"

    def __init__(self, config: StoreConfig, lower: Stage, executor: Executor) -> None:
        self._lower = lower
        self._executor = executor
        self._limit = config.cache_bytes
        self._used = 0  # bytes of all buffers, cached or free
        self._free: dict[int, list[torch.Tensor]] = {}
        self._nodes: OrderedDict[Key, Node] = OrderedDict()
        self._lock = Lock()
        count = self._limit // (config.block_size or TYPICAL_BYTES)
        CACHE.info("buffer pool initialised: %d buffers", count)

    def begin(self, block_id: bytes, shard: int) -> Dump:
        """A new dump: what is cached of the block is not it."""
        dump = self._lower.begin(block_id, shard)
        self._discard((block_id, shard))
        return dump

    def write(self, dump: Dump, piece: Piece) -> None:
        """Through the pool to the lower stage; cached only when that has it."""
        node = self._node(dump.key, piece.length, piece.dtype)
        if node is None:
            self._lower.write(dump, piece)
            self._discard(dump.key)
            return
        try:
            piece.copied_to(node.piece.data)
            self._lower.write(dump, node.piece)
            self._replace(node)
        finally:
            self._let_go(node)

    def read(self, block_id: bytes, shard: int, piece: Piece) -> None:
        """From the pool, or through it from the lower stage."""
        key = (block_id, shard)
        node, mine = self._find(key, piece.length, piece.dtype)
        if node is None:
            self._lower.read(block_id, shard, piece)
            return
        try:
            if mine:
                self._fill(node)
            elif node.filled is not None:
                node.filled.wait(None)
            if node.error is None and (node.piece.length, node.piece.dtype) == (
                piece.length,
                piece.dtype,
            ):
                piece.fill(node.piece.data)
                if not mine:
                    self._lower.touch(block_id, shard)
                return
            error = node.error
        finally:
            self._let_go(node)
        if isinstance(error, BlockMismatch) and not mine:
            self._lower.read(block_id, shard, piece)  # the destination that did not fit was another's
        elif error is not None:
            raise type(error)(str(error), error.errno) from error
        else:
            raise BlockMismatch(
                f"the block is {node.piece.length} bytes of {node.piece.dtype};"
                f" the destination {piece.length} bytes of {piece.dtype}"
            )

    def prefetch(self, block_id: bytes, shard: int) -> None:
        """Fill a buffer, if one is free or can be freed."""
        if (block_id, shard) in self._nodes:
            return
        length, dtype = self._lower.describe(block_id, shard)
        node, mine = self._find((block_id, shard), length, dtype)
        if node is not None:
            try:
                if mine:
                    self._fill(node)
            finally:
                self._let_go(node)

    def _fill(self, node: Node) -> None:
        """Load into the node; its error, if any, is for whoever holds it."""
        try:
            self._lower.read(*node.key, node.piece)
        except StoreError as error:
            node.error = error
        except BaseException as error:  # whoever waits must not wait for ever
            node.error = StoreError(f"{type(error).__name__}: {error}")
            raise
        finally:
            if node.error is not None:
                with self._lock:
                    if self._nodes.get(node.key) is node:
                        del self._nodes[node.key]
            if node.filled is not None:
                node.filled.set()

    def _find(self, key: Key, length: int, dtype: str) -> tuple[Node | None, bool]:
        """The node of `key`, now held; and whether the caller is the one to fill it."""
        with self._lock:
            node = self._nodes.get(key)
            if node is not None:
                node.holders += 1
                self._nodes.move_to_end(key)
                return node, False
        fresh = self._node(key, length, dtype)
        if fresh is None:
            return None, False
        fresh.filled = self._executor.event()
        with self._lock:
            node = self._nodes.setdefault(key, fresh)
            if node is not fresh:
                node.holders += 1
        if node is not fresh:
            self._let_go(fresh)
        return node, node is fresh

    def _node(self, key: Key, length: int, dtype: str) -> Node | None:
        """A node with a buffer, held by the caller and in no table; None where the pool is in use."""
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
        for key in list(self._nodes):
            if self._used + size <= self._limit:
                break
            node = self._nodes[key]
            if node.holders:
                continue
            del self._nodes[key]
            if node.buffer.numel() == size:
                return node.buffer
            self._used -= node.buffer.numel()
        if self._used + size > self._limit:
            return None
        self._used += size
        return torch.empty(0, dtype=torch.uint8)

    def _replace(self, node: Node) -> None:
        """`node` is what is cached of its key from now on."""
        with self._lock:
            old = self._nodes.pop(node.key, None)
            self._nodes[node.key] = node
            if old is not None and not old.holders:
                self._free.setdefault(old.buffer.numel(), []).append(old.buffer)

    def _discard(self, key: Key) -> None:
        with self._lock:
            old = self._nodes.pop(key, None)
            if old is not None and not old.holders:
                self._free.setdefault(old.buffer.numel(), []).append(old.buffer)

    def _let_go(self, node: Node) -> None:
        with self._lock:
            node.holders -= 1
            if not node.holders and self._nodes.get(node.key) is not node:
                self._free.setdefault(node.buffer.numel(), []).append(node.buffer)

    def abandon(self, dump: Dump) -> None:
        """Not cached either."""
        self._lower.abandon(dump)
        self._discard(dump.key)

    def visible(self, block_id: bytes) -> bool:
        """As the lower stage has it: cached is not committed."""
        return self._lower.visible(block_id)

    def commit(self, block_id: bytes) -> None:
        """The lower stage's."""
        self._lower.commit(block_id)

    def drop(self, block_id: bytes) -> None:
        """Forget the block, cached or not."""
        self._lower.drop(block_id)
        with self._lock:
            shards = [key for key in self._nodes if key[0] == block_id]
        for key in shards:
            self._discard(key)

    def touch(self, block_id: bytes, shard: int) -> None:
        """The lower stage's."""
        self._lower.touch(block_id, shard)

    def describe(self, block_id: bytes, shard: int) -> tuple[int, str]:
        """The lower stage's."""
        return self._lower.describe(block_id, shard)

    def close(self) -> None:
        """Let the pool go."""
        self._lower.close()
        with self._lock:
            self._nodes.clear()
            self._free.clear()


def _fresh(size: int) -> torch.Tensor:
    if torch.cuda.is_available():
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    return page_aligned(size)


class UcmCacheStore(BlockStore):
    """The Cache stage over the Posix stage: a cache alone would keep nothing."""

    pipeline = "Cache|Posix"

    def _build(self, disk: Disk) -> Stage:
        return CacheStage(self.config, PosixStage(self.config, disk, self._clock), self._executor)
