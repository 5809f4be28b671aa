"""What the clients of a store asked and were told: calls with their answers, and where they stand.

Blocks have small numbers here; `History.id_of` and `content` say what stands for them in the store. A
call has the indexes of the run's events between which it lay, so that a fault can be placed within it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from scenarios.store.patterns import Pattern

ELEMENT = torch.int32
POISON = -1  # what a load's tensor holds before
SPOILED = -2  # what a client that does not wait writes into the tensor of its dump
FILLED = "the poison of the destination"
REUSED = "what the source held after the dump was asked for"


def content(block: int, shard: int, elements: int) -> torch.Tensor:
    """The block's data: every element says block, shard and index; none is like POISON."""
    base = (block % 64) << 24 | (shard % 16) << 20
    return torch.arange(base, base + elements, dtype=ELEMENT)


Early = Literal["", "wrote its source", "read its destination", "went on"]


class Passed(NamedTuple):
    """The arguments of a call, as far as they can be wrong. nbytes: of all blocks; 0: no tensor."""

    ids: tuple[bytes, ...]
    shard: int = 0
    nbytes: int = 0
    dtype: str = ""
    device: str = ""
    contiguous: bool = True

    @classmethod
    def of(cls, args: Mapping[str, Any]) -> Passed:
        """What stands in the arguments by name."""
        ids, tensor = tuple(args.get("block_ids", ())), args.get("tensor")
        if tensor is None:
            return cls(ids)
        return cls(
            ids, args["offset"], tensor.numel() * tensor.element_size(),
            str(tensor.dtype).removeprefix("torch."), tensor.device.type, tensor.is_contiguous(),
        )


@dataclass(slots=True)
class Call:
    """One call of one client. codes: a status a block (dump, load, commit), or 0 and 1 for a lookup's
    misses and hits. error: of a call that raised. wrong: by block, what a load that was told good is.

    began, ended: numbers of events; ended is -1 while there is no answer (the process died in it).
    meant, given: what the program passed, and what reached the store. early: what the client did at event
    `early_at` although the task was not done then: wrote its source, read its destination, went on.
    """

    rank: int
    kind: str
    blocks: tuple[int, ...]
    shard: int = 0
    flags: tuple[bool, ...] = ()
    codes: tuple[int, ...] = ()
    error: str = ""
    text: str = ""
    wrong: dict[int, Pattern] = field(default_factory=dict)
    opened: int = 0  # which store object of the rank
    cancelled: bool = False  # the client gave up what had not begun
    began: int = 0
    ended: int = -1
    meant: Passed | None = None
    given: Passed | None = None
    early: Early = ""
    early_at: int = -1

    def __str__(self) -> str:
        blocks = ", ".join(map(str, self.blocks))
        shard = f" shard {self.shard}" if self.kind in ("dump", "load") and self.shard else ""
        return f"{self.kind}({blocks}){shard} of rank {self.rank}"


@dataclass(slots=True)
class History:
    """The calls of all clients in the order in which they began, and the disk that they shared.

    evicts: whether the store may remove committed blocks. shards: of a block. tolerated: statuses that
    need no fault. forgotten: acknowledgements before this event promise nothing (a power cut).
    closed: how many stores were closed in order. cuts: the events before which the power was cut. most:
    bytes that the committed blocks may take at the end; 0: any. taken: files that the power cut took, or
    parts of them.
    """

    disk: Any
    evicts: bool = False
    shards: int = 1
    tolerated: frozenset[int] = frozenset()
    forgotten: int = 0
    closed: int = 0
    cuts: list[int] = field(default_factory=list)
    most: int = 0
    taken: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)

    def number_of(self, block_id: bytes) -> int:
        """The number that stands for a block whose id the program has made."""
        if block_id not in self.ids:
            self.ids.append(block_id)
        return self.ids.index(block_id)

    def id_of(self, block: int) -> bytes:
        """The block's id, 16 bytes."""
        return self.ids[block] if self.ids else hashlib.md5(f"block {block}".encode()).digest()

    def begin(self, rank: int, kind: str, blocks: Sequence[int], **known: Any) -> Call:
        """A call that begins now."""
        call = Call(rank, kind, tuple(blocks), **known)
        self.calls.append(call)
        return call
