"""LMDB behind the adapter's protocol: a kept, transactional store, as the positive control.

It has no checksums and maps its file, so damage from outside may give wrong bytes or SIGBUS: that is not
promised. A transaction is durable when it is committed. The extra `stores` brings it.
"""

from __future__ import annotations

import importlib
from typing import Any

from scenarios.store.adapters.adapter import Adapter, fill
from scenarios.store.adapters.black_box import black_box

MAP_BYTES = 64 << 20


class Lmdb(Adapter):
    """One transaction a block."""

    survives_damage = False
    survives_power_cut = "kept"
    package = "lmdb"
    preload = ("lmdb",)

    def open(self, folder: str) -> None:
        """The environment is the folder."""
        self.env = importlib.import_module("lmdb").open(folder, map_size=MAP_BYTES)

    def put(self, block_id: bytes, source: Any) -> None:
        """Store one block."""
        with self.env.begin(write=True) as transaction:
            transaction.put(block_id, memoryview(source.numpy()))

    def get(self, block_id: bytes, target: Any) -> bool:
        """Copy one block out."""
        with self.env.begin(buffers=True) as transaction:
            return fill(target, transaction.get(block_id))

    def has(self, block_id: bytes) -> bool:
        """Whether there is such a key."""
        with self.env.begin(buffers=True) as transaction:
            return transaction.get(block_id) is not None

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


scenarios = black_box(Lmdb, "store.lmdb_")
