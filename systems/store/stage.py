"""What a stage of the pipeline offers: one block's shard at a time, synchronously, with typed errors.

A stage is one class in one file. The front (systems.store.front) makes tasks of these calls and runs
them on workers; a stage above another holds it as `lower` and adds something, nothing else.
"""

from __future__ import annotations

from typing import Literal, Protocol

from systems.store.piece import Piece

Key = tuple[bytes, int]  # block id, shard


class Dump:
    """One dump of one (id, shard) by this store: running, then ready to be committed, then gone."""

    def __init__(self, block_id: bytes, shard: int) -> None:
        self.key: Key = (block_id, shard)
        self.state: Literal["running", "ready", "committing", "gone"] = "running"
        self.path = ""
        self.length = 0
        self.residue = ""  # the temporary file of the dump that this one replaces


class Stage(Protocol):
    """One layer of the store."""

    name: str

    def begin(self, block_id: bytes, shard: int) -> Dump:
        """Announce a dump; from now on a commit of the block waits for it."""

    def write(self, dump: Dump, piece: Piece) -> None:
        """Do the dump; returns when the data is where the lowest stage keeps it."""

    def abandon(self, dump: Dump) -> None:
        """The dump will not be done, or its data is not wanted any more."""

    def read(self, block_id: bytes, shard: int, piece: Piece) -> None:
        """Fill `piece` with the verified data."""

    def visible(self, block_id: bytes) -> bool:
        """Whether the block is committed with all its shards."""

    def permit(self, block_id: bytes, shard: int) -> None:
        """BlockNotFound unless what is committed of this shard may be loaded by this store."""

    def mine(self, block_id: bytes, shard: int) -> bool:
        """Whether a load would read what this store dumped and nobody else may see yet."""

    def commit(self, block_id: bytes) -> None:
        """Make what was dumped visible to everybody, at once for each shard."""

    def drop(self, block_id: bytes) -> None:
        """Forget what was dumped and not committed; leaves no residue."""

    def prefetch(self, block_id: bytes, shard: int) -> None:
        """Bring a block nearer, where the stage has a nearer place."""

    def touch(self, block_id: bytes, shard: int) -> None:
        """The block was used in a stage above, without a read here."""

    def describe(self, block_id: bytes, shard: int) -> tuple[int, str]:
        """Length and dtype of a block that this store may load."""

    def close(self) -> None:
        """Drop all that was not committed."""
