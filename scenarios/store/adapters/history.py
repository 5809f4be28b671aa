"""What a black-box run leaves to be judged: each call with the status of each block."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from scenarios.store.adapters.adapter import Adapter

Kind = Literal["hit", "miss", "ok", "error", "timeout", "crash", "misuse", "killed"]
ENDS = ("timeout", "crash", "misuse")  # of a client
MISSING = 1000  # blocks from this number on are never dumped


@dataclass(frozen=True, slots=True)
class Status:
    """One block's answer, or that of a whole call. got: the bytes of a hit. at: source and destination
    pointer % 512, where they are known."""

    kind: Kind
    text: str = ""
    got: bytes = b""
    at: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        return f"{self.kind} ({self.text})" if self.text else self.kind


@dataclass(frozen=True, slots=True)
class Step:
    """One call. statuses: one a block, or a single one where the call as a whole ended so."""

    client: int
    operation: str
    blocks: tuple[int, ...]
    statuses: tuple[Status, ...]
    version: int = 0

    def of(self, index: int) -> Status:
        """The status of the block at `index`."""
        return self.statuses[index if len(self.statuses) == len(self.blocks) else 0]

    def __str__(self) -> str:
        words = [f"client {self.client}" if self.client >= 0 else "from outside,", self.operation]
        if self.blocks:
            words.append(f"{[_shown(block) for block in self.blocks]}".replace("'", ""))
        if self.version:
            words.append(f"version {self.version}")
        kinds = [status.kind for status in self.statuses]
        told = kinds[0] if len(set(kinds)) == 1 else ", ".join(kinds)
        return f"{' '.join(words)}: {told}" if kinds else " ".join(words)


def _shown(block: int) -> str:
    return str(block) if block < MISSING else "missing"


@dataclass(slots=True)
class History:
    """A run of one adapter. sizes: of each block, by its number."""

    adapter: type[Adapter]
    sizes: tuple[int, ...]
    steps: list[Step] = field(default_factory=list)

    def data(self, block: int, version: int = 0) -> bytes:
        """The right bytes of a block: different in every block, version and place."""
        size = self.sizes[block % len(self.sizes)] if self.sizes else 0
        return hashlib.shake_128(f"{block}:{version}".encode()).digest(size)


def block_id(block: int) -> bytes:
    """The id of a block, as stores have them: the MD5 digest of what it stands for."""
    return hashlib.md5(f"block {block}".encode()).digest()
