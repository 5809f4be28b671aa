"""What the store's scenarios have in common: how a store is configured."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

PAGE = 4096


class StoreParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """elements: int32 values of a block. cached: blocks that the cache has room for; 0: no Cache stage.

    direct: direct I/O of 512 bytes, for which most lengths and addresses need a bounce buffer.
    """

    elements: Annotated[int, Meta(ge=1, le=3000)] = 300
    workers: Annotated[int, Meta(ge=1, le=3)] = 2
    cached: Annotated[int, Meta(ge=0, le=4)] = 0
    durability: Literal["none", "flush", "fsync"] = "flush"
    direct: bool = False
    poll: bool = False

    def config(self, **more: Any) -> dict[str, Any]:
        """The store's configuration."""
        size = -(-4 * self.elements // PAGE) * PAGE
        return {
            "store_pipeline": "Cache|Posix" if self.cached else "Posix",
            "cache_bytes": max(self.cached, 1) * size, "workers": self.workers,
            "durability": self.durability, "io_direct": self.direct, "alignment": 512, **more,
        }
