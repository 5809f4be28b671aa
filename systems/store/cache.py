"""The Cache stage: a bounded pool of aligned buffers over the lower stage.

Written through: a dump is done when the lower stage has it, so dumped and persisted are one thing.
Lookups are the lower stage's. A buffer that a running load or dump holds is never evicted nor reused;
where none is free the operation goes past the cache, so a pool smaller than a batch works. Whoever
waits for another's load gets its error. The pool is the store's own, or with `cache_shared` one of all
stores of that name on the host. Blocks are content-addressed: another process replacing a block under
the same id is not noticed.
"""

from __future__ import annotations

from systems.store.config import StoreConfig
from systems.store.errors import BlockMismatch, BlockNotFound, StoreError
from systems.store.front import BlockStore
from systems.store.header import require_fit
from systems.store.log import CACHE
from systems.store.piece import Piece
from systems.store.pool import Node, Pool, PrivatePool
from systems.store.ports import Disk, Executor
from systems.store.posix import PosixStage
from systems.store.shared_pool import SharedPool
from systems.store.stage import Dump, Key, Stage

TYPICAL_BYTES = 1 << 20  # a buffer, for the log line, where block_size does not say


class CacheStage:
    """What was dumped or loaded last is near."""

    name = "Cache"

    def __init__(self, config: StoreConfig, lower: Stage, executor: Executor) -> None:
        self._lower = lower
        self._shards = config.shards
        self._pool: Pool = PrivatePool(config.cache_bytes, executor)
        count = config.cache_bytes // (config.block_size or TYPICAL_BYTES)
        if config.cache_shared:
            self._pool = shared = SharedPool(config)
            count = shared.slots
        CACHE.info("buffer pool initialised: %d buffers", count)

    def begin(self, block_id: bytes, shard: int) -> Dump:
        """A new dump: what is cached of the block is not it."""
        dump = self._lower.begin(block_id, shard)
        self._pool.discard((block_id, shard))
        return dump

    def write(self, dump: Dump, piece: Piece) -> None:
        """Through the pool to the lower stage; cached only when that has it."""
        node = self._pool.take(dump.key, piece.length, piece.dtype)
        if node is None:
            self._lower.write(dump, piece)
            self._pool.discard(dump.key)
            return
        try:
            piece.copied_to(node.piece)
            self._lower.write(dump, node.piece)
            self._cache(dump, node)
        finally:
            self._pool.let_go(node)

    def _cache(self, dump: Dump, node: Node) -> None:
        """The lower stage has the dump; near from now on, unless it was dropped since."""
        self._pool.replace(node)
        if dump.state == "gone":
            self._pool.discard(dump.key)

    def read(self, block_id: bytes, shard: int, piece: Piece) -> None:
        """From the pool, or through it from the lower stage."""
        node, fills = self._find(block_id, shard, piece)
        if node is None:
            self._lower.read(block_id, shard, piece)
            return
        try:
            if fills:
                self._fill(node)
            error = self._pool.outcome(node)
            if error is None:
                require_fit(node.fits, piece.length, piece.dtype)
                piece.fill(node.piece)
        finally:
            self._pool.let_go(node)
        if error is not None:
            self._without(error, block_id, shard, piece, fills=fills)
        elif not fills:
            self._lower.touch(block_id, shard)

    def _find(self, block_id: bytes, shard: int, piece: Piece) -> tuple[Node | None, bool]:
        own = self._lower.mine(block_id, shard)
        if self._pool.shared and not own:
            self._lower.permit(block_id, shard)
        return self._pool.find((block_id, shard), piece.length, piece.dtype, own=own)

    def _without(
        self, error: StoreError, block_id: bytes, shard: int, piece: Piece, *, fills: bool
    ) -> None:
        """The node was not filled: that is this load's error too, but for another's wrong destination."""
        if isinstance(error, BlockMismatch) and not fills:
            self._lower.read(block_id, shard, piece)
            return
        raise type(error)(str(error), error.errno) from error

    def prefetch(self, block_id: bytes, shard: int) -> None:
        """Fill a buffer, if one is free or can be freed."""
        length, dtype = self._lower.describe(block_id, shard)
        own = self._lower.mine(block_id, shard)
        node, fills = self._pool.find((block_id, shard), length, dtype, own=own)
        if node is not None:
            try:
                if fills:
                    self._fill(node)
            finally:
                self._pool.let_go(node)

    def _fill(self, node: Node) -> None:
        """Load into the node; its error, if any, is for whoever holds it."""
        try:
            self._lower.read(*node.key, node.piece)
        except StoreError as error:
            self._pool.failed(node, error)
        except BaseException as error:  # whoever waits must not wait for ever
            self._pool.failed(node, StoreError(f"{type(error).__name__}: {error}"))
            raise
        else:
            self._pool.succeeded(node)

    def abandon(self, dump: Dump) -> None:
        """Not cached either."""
        self._lower.abandon(dump)
        self._pool.discard(dump.key)

    def visible(self, block_id: bytes) -> bool:
        """As the lower stage has it: cached is not committed."""
        return self._lower.visible(block_id)

    def permit(self, block_id: bytes, shard: int) -> None:
        """The lower stage's."""
        self._lower.permit(block_id, shard)

    def mine(self, block_id: bytes, shard: int) -> bool:
        """The lower stage's."""
        return self._lower.mine(block_id, shard)

    def commit(self, block_id: bytes) -> None:
        """The lower stage's; then others may see what is near, too."""
        keys = self._dumped(block_id)
        try:
            self._lower.commit(block_id)
        except BlockNotFound:
            self._discard(keys)
            raise
        finally:
            for key in keys:
                if not self._lower.mine(*key):  # also where the commit stopped half-way
                    self._pool.publish(key)

    def _dumped(self, block_id: bytes) -> list[Key]:
        """Every shard that only this store may see yet."""
        keys = [(block_id, shard) for shard in range(self._shards)]
        return [key for key in keys if self._lower.mine(*key)]

    def _discard(self, keys: list[Key]) -> None:
        for key in keys:
            self._pool.discard(key)

    def drop(self, block_id: bytes) -> None:
        """Forget what was not committed of the block, cached or not."""
        keys = self._dumped(block_id)
        self._lower.drop(block_id)
        self._discard(keys)

    def touch(self, block_id: bytes, shard: int) -> None:
        """The lower stage's."""
        self._lower.touch(block_id, shard)

    def describe(self, block_id: bytes, shard: int) -> tuple[int, str]:
        """The lower stage's."""
        return self._lower.describe(block_id, shard)

    def close(self) -> None:
        """Let the pool go."""
        self._lower.close()
        self._pool.close()


class UcmCacheStore(BlockStore):
    """The Cache stage over the Posix stage: a cache alone would keep nothing."""

    pipeline = "Cache|Posix"

    def _build(self, disk: Disk) -> Stage:
        return CacheStage(self.config, PosixStage(self.config, disk, self._clock), self._executor)
