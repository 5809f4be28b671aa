"""The embedded store behind the adapter's protocol, on the real disk with its own threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from scenarios.store.adapters.adapter import Adapter, AfterPowerCut
from scenarios.store.adapters.black_box import black_box
from systems.store import UcmConnectorFactory


class Embedded(Adapter):
    """`Cache|Posix`, with checksums and commit by rename."""

    commits = True
    survives_power_cut: ClassVar[AfterPowerCut] = "kept"
    preload = ("systems.store.pipeline",)
    config: ClassVar[dict[str, Any]] = {"store_pipeline": "Cache|Posix", "durability": "fsync"}

    def open(self, folder: str) -> None:
        """Open it with a small pool and two workers."""
        self.store = UcmConnectorFactory.create_connector(
            "UcmPipelineStore",
            {
                "storage_path": folder, "cache_bytes": 1 << 20, "workers": 2, "timeout_ms": 8000,
                **self.config,
            },
            **self._ports(),
        )

    def _ports(self) -> dict[str, Any]:
        """Ports other than the real ones."""
        return {}

    def dump(self, block_ids: Sequence[bytes], sources: Sequence[Any]) -> list[bool | str]:
        """One task; a block's own status."""
        return self._waited(self.store.dump(block_ids, 0, list(sources)), miss=False)

    def commit(self, block_ids: Sequence[bytes]) -> None:
        """All of them."""
        codes = self.store.commit(block_ids, [True] * len(block_ids))
        if any(codes):
            raise RuntimeError(f"commit: {codes}")

    def load(self, block_ids: Sequence[bytes], targets: Sequence[Any]) -> list[bool | str]:
        """One task; not found is a miss."""
        return self._waited(self.store.load(block_ids, 0, list(targets)), miss=True)

    def _waited(self, task: Any, *, miss: bool) -> list[bool | str]:
        self.store.wait(task)
        return [
            True if not status
            else False if miss and status == NOT_FOUND
            else task.failures[index].text if index in task.failures else f"status {status}"
            for index, status in enumerate(task.statuses)
        ]

    def lookup(self, block_ids: Sequence[bytes]) -> list[bool]:
        """As the store says."""
        return self.store.lookup(block_ids)

    def close(self) -> None:
        """Close it."""
        self.store.close()


class EmbeddedFlushed(Embedded):
    """A file's data is durable before it can be committed, its name is not."""

    survives_power_cut = "whole"
    config: ClassVar[dict[str, Any]] = {"store_pipeline": "Cache|Posix", "durability": "flush"}


class EmbeddedUnsynced(Embedded):
    """Nothing is asked of the disk."""

    survives_power_cut = "whole"
    config: ClassVar[dict[str, Any]] = {"store_pipeline": "Posix", "durability": "none"}


NOT_FOUND = -50005
flushed = black_box(EmbeddedFlushed, "store.embedded_flushed_")["power_cut"]
unsynced = black_box(EmbeddedUnsynced, "store.embedded_unsynced_")["power_cut"]
scenarios = black_box(Embedded, "store.embedded_")
