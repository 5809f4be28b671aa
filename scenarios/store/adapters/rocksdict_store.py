"""RocksDB (through rocksdict) behind the adapter's protocol: the positive control that has checksums.

What its documentation says is declared: one process at a time, a write-ahead log that is not synchronised
(a power cut may take the last writes), and a full disk that leaves the open database read-only. The extra
`stores` brings it.
"""

from __future__ import annotations

import importlib
from typing import Any

from scenarios.store.adapters.adapter import Adapter, fill
from scenarios.store.adapters.black_box import black_box

BUFFER_BYTES = 1 << 20


class Rocksdict(Adapter):
    """Default options, but for small buffers; keys and values are bytes."""

    several_processes = False
    survives_shortage = False
    survives_power_cut = "whole"
    package = "rocksdict"

    def open(self, folder: str) -> None:
        """The database is the folder."""
        rocksdict = importlib.import_module("rocksdict")
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)  # noqa: FBT003 - its signature
        options.set_write_buffer_size(BUFFER_BYTES)
        self.db = rocksdict.Rdict(folder, options)

    def put(self, block_id: bytes, source: Any) -> None:
        """Store one block."""
        self.db.put(block_id, source.numpy().tobytes())

    def get(self, block_id: bytes, target: Any) -> bool:
        """Copy one block out."""
        return fill(target, self.db.get(block_id))

    def has(self, block_id: bytes) -> bool:
        """Whether there is such a key."""
        return self.db.get(block_id) is not None

    def close(self) -> None:
        """Close the database."""
        self.db.close()


scenarios = black_box(Rocksdict, "store.rocksdict_")
