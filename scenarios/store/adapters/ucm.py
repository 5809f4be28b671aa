"""UCM's stores behind the adapter's protocol: the second interface generation, and the first.

Signatures, codes and exceptions as of Unified Cache Management 0.5.0rc1 (its public source). What UCM
does not promise is declared: a file has no checksum, a block has one length, and the Posix stage's lookup
stops at the first miss. Without `ucm` there are no such scenarios. Not modelled: devices, several shards.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from harness import Scenario
from scenarios.store.adapters.adapter import Adapter
from scenarios.store.adapters.black_box import black_box

BLOCK_BYTES = 16384
TIMEOUT_MS = 8000


class Ucm(Adapter):
    """Second generation: ids are bytes, errors are exceptions of `wait`, no commit."""

    survives_damage = False
    lookup_stops_at_a_miss = True
    block_bytes = BLOCK_BYTES
    deadline = 20.0  # its own timeout, and the 2 s slices after it

    def open(self, folder: str) -> None:
        """A pipeline of the Posix stage alone: what Cache holds is not in the folder yet."""
        factory = importlib.import_module("ucm.store.factory_v1").UcmConnectorFactoryV1
        self.store = factory.create_connector(
            "UcmPipelineStore",
            {
                "store_pipeline": "Posix", "storage_backends": [folder], "device_id": 0,
                "tensor_size": BLOCK_BYTES, "shard_size": BLOCK_BYTES, "block_size": BLOCK_BYTES,
                "unique_id": "rankfault", "timeout_ms": TIMEOUT_MS, "io_direct": False,
            },
        )

    def dump(self, block_ids: Sequence[bytes], sources: Sequence[Any]) -> None:
        """One task."""
        if block_ids:
            shards = [0] * len(block_ids)
            self.store.wait(self.store.dump(list(block_ids), shards, [[one] for one in sources]))

    def load(self, block_ids: Sequence[bytes], targets: Sequence[Any]) -> list[bool]:
        """One task; it fails as a whole, without saying which block."""
        if block_ids:
            shards = [0] * len(block_ids)
            self.store.wait(self.store.load(list(block_ids), shards, [[one] for one in targets]))
        return [True] * len(block_ids)

    def lookup(self, block_ids: Sequence[bytes]) -> list[bool]:
        """The hit mask."""
        return [bool(hit) for hit in self.store.lookup(list(block_ids))] if block_ids else []


class UcmFirst(Adapter):
    """First generation: ids are text, errors are codes, blocks are created and committed."""

    survives_damage = False
    commits = True
    refuses_duplicates = True
    block_bytes = BLOCK_BYTES
    deadline = 20.0

    def open(self, folder: str) -> None:
        """The Nfs store, as a worker."""
        factory = importlib.import_module("ucm.store.factory").UcmConnectorFactory
        self.store = factory.create_connector(
            "UcmNfsStore",
            {
                "storage_backends": folder, "kv_block_size": BLOCK_BYTES, "role": "worker",
                "device": 0, "io_size": BLOCK_BYTES, "use_direct": False,
            },
        )

    def dump(self, block_ids: Sequence[bytes], sources: Sequence[Any]) -> list[bool | str]:
        """Create all, dump those that could be created. A block that is there already is refused."""
        names = [one.hex() for one in block_ids]
        codes = self.store.create(names) if names else []
        made = [index for index, code in enumerate(codes) if code == 0]
        if made:
            task = self.store.dump(
                [names[index] for index in made], [0] * len(made), [sources[index] for index in made]
            )
            _succeeded(self.store.wait(task), "wait for a dump")
        return [True if code == 0 else f"create: {code}" for code in codes]

    def commit(self, block_ids: Sequence[bytes]) -> None:
        """As successful."""
        if block_ids:
            self.store.commit([one.hex() for one in block_ids], True)  # noqa: FBT003 - its signature

    def load(self, block_ids: Sequence[bytes], targets: Sequence[Any]) -> list[bool]:
        """One task; it fails as a whole, without saying which block."""
        if block_ids:
            names = [one.hex() for one in block_ids]
            task = self.store.load(names, [0] * len(names), list(targets))
            _succeeded(self.store.wait(task), "wait for a load")
        return [True] * len(block_ids)

    def lookup(self, block_ids: Sequence[bytes]) -> list[bool]:
        """The hit mask."""
        if not block_ids:
            return []
        return [bool(hit) for hit in self.store.lookup([one.hex() for one in block_ids])]


def _succeeded(code: int, doing: str) -> None:
    if code != 0:
        raise RuntimeError(f"{doing}: {code}")


installed = importlib.util.find_spec("ucm") is not None
second: dict[str, Scenario] = black_box(Ucm, "store.ucm_") if installed else {}
first: dict[str, Scenario] = black_box(UcmFirst, "store.ucm_first_") if installed else {}
