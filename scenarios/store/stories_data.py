"""The story *corrupted data*: a load succeeds and the bytes are not those that were meant.

The store's checksum is right in every case: what went wrong happened between the client's data and the
buffer that the store was given. Told apart by the pattern of the wrong bytes (patterns.py).
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import torch
from msgspec import Meta

from harness import Scenario, SimulatedDisk, World, mutant
from scenarios.store.patterns import cause_of, pattern
from scenarios.store.stories import Stories, Symptom, Workers, block_ids, idle, opened

UNIT = 1024
POISON = 0xA5
FILLED = "the poison of the destination"
NEXT = "what the source was given next"
BEFORE = "what the source held before"


class Blocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """blocks: that are dumped one after the other from one buffer. units: of 1 KiB each."""

    blocks: Annotated[int, Meta(ge=2, le=4)] = 2
    units: Annotated[int, Meta(ge=4, le=16)] = 8


@dataclass(frozen=True, slots=True)
class Loaded:
    """One block as it was meant and as it came; source and destination pointer."""

    rank: int
    block: int
    right: bytes
    got: bytes
    pointers: tuple[int, int]


@dataclass(slots=True)
class Corrupted:
    """Every block that was loaded, by rank; what else its bytes may be, by name."""

    loaded: list[Loaded] = field(default_factory=list)
    before: dict[int, bytes] = field(default_factory=dict)
    after: dict[int, bytes] = field(default_factory=dict)

    def symptoms(self) -> Iterator[Symptom]:
        """One for each block that is wrong."""
        for one in self.loaded:
            known = {
                NEXT: self.after[one.block], BEFORE: self.before[one.block],
                FILLED: bytes([POISON]) * len(one.right),
                **{f"block {o.block}": o.right for o in self.loaded if o.block != one.block},
            }
            found = pattern(one.right, one.got, known)
            if found is None:
                continue
            first = found.first
            largest = max(abs(a - b) for a, b in zip(one.right, one.got, strict=True))
            given, wanted = one.got[first : first + 8].hex(" "), one.right[first : first + 8].hex(" ")
            source, target = one.pointers
            yield Symptom(
                "silent_corruption", one.rank, f"rank {one.rank}'s block {one.block}: {found.text}",
                (
                    f"from byte {first} on: {given}; expected: {wanted}",
                    f"{found.wrong} of {len(one.right)} bytes differ, by {largest} at most",
                    f"pointer % 512: source {source % 512}, destination {target % 512}",
                ),
                cause_of(found, poison=FILLED, reused=NEXT),
            )


def data_of(name: str, size: int) -> torch.Tensor:
    """Bytes that differ everywhere."""
    return torch.frombuffer(bytearray(hashlib.shake_128(name.encode()).digest(size)), dtype=torch.uint8)


def source_of(buffer: torch.Tensor, size: int) -> torch.Tensor:
    """The part of the buffer that is dumped: all of it but the margins, which begin and end it."""
    return buffer[UNIT : UNIT + size]


def fill(buffer: torch.Tensor, data: torch.Tensor) -> None:
    """Put a block's data where it is dumped from."""
    buffer[UNIT : UNIT + len(data)] = data


def finished(store: Any, task: Any, buffer: torch.Tensor, following: torch.Tensor) -> int:
    """Wait for a dump, then give the buffer its next content; the status."""
    code: int = store.wait(task)
    fill(buffer, following)
    return code


def _host(world: World, params: Blocks) -> Corrupted:
    size = params.units * UNIT
    ids = block_ids("a prompt", params.blocks)
    rights = [data_of(f"block {number}", size) for number in range(params.blocks)]
    seen = Corrupted()
    for number in range(params.blocks):
        seen.before[number] = _bytes(rights[number - 1] if number else data_of("nothing yet", size))
        seen.after[number] = _bytes(data_of(f"the step after {number}", size))
    for rank in range(world.size):
        world.dispatch(idle, device=rank)
        _one_client(seen, rank, ids, rights, size)
    return seen


def _one_client(
    seen: Corrupted, rank: int, ids: list[bytes], rights: list[torch.Tensor], size: int
) -> None:
    workers = Workers()
    store = opened(SimulatedDisk(clock=workers.time), workers, workers=1)
    buffer = _on_a_page(size + 2 * UNIT)
    pointers = []
    for number, one in enumerate(ids):
        buffer[UNIT : UNIT + size] = torch.frombuffer(bytearray(seen.before[number]), dtype=torch.uint8)
        fill(buffer, rights[number])
        source = source_of(buffer, size)
        pointers.append(source.data_ptr())
        following = torch.frombuffer(bytearray(seen.after[number]), dtype=torch.uint8)
        finished(store, store.dump([one], 0, source), buffer, following)
        store.commit([one], True)  # noqa: FBT003 - the documented call
    for number, one in enumerate(ids):
        target = _on_a_page(size).fill_(POISON)
        if store.wait(store.load([one], 0, target)) == 0:
            pair = (pointers[number], target.data_ptr())
            seen.loaded.append(Loaded(rank, number, _bytes(rights[number]), _bytes(target), pair))
    workers.close()


def _on_a_page(size: int) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()


@mutant(of=source_of, expects="store/silent_corruption", ranks=1)
def misaligned(buffer: torch.Tensor, size: int) -> torch.Tensor:
    """The pointer that is handed over is four bytes off.

    Finding: store/silent_corruption. Smallest world: 1.
    """
    return buffer[UNIT - 4 : UNIT - 4 + size]


@mutant(of=fill, expects="store/silent_corruption", ranks=1)
def partial_write(buffer: torch.Tensor, data: torch.Tensor) -> None:
    """Only the first half of a block reaches the buffer before it is dumped.

    Finding: store/silent_corruption. Smallest world: 1.
    """
    half = len(data) // 2
    buffer[UNIT : UNIT + half] = data[:half]


@mutant(of=source_of, expects="store/silent_corruption", ranks=1)
def wrong_offset(buffer: torch.Tensor, size: int) -> torch.Tensor:
    """The offset is computed without the margin in front of the data.

    Finding: store/silent_corruption. Smallest world: 1.
    """
    return buffer[:size]


@mutant(of=finished, expects="store/silent_corruption", ranks=1)
def premature_reuse(store: Any, task: Any, buffer: torch.Tensor, following: torch.Tensor) -> int:
    """The buffer gets its next content before the dump is waited for.

    Finding: store/silent_corruption. Smallest world: 1.
    """
    fill(buffer, following)
    code: int = store.wait(task)
    return code


story = Scenario(
    name="store.story_corrupted_data", host=_host, params=Blocks, ranks=(1, 4), checkers=(Stories(),),
    mutants={one.name: one for one in (misaligned, partial_write, wrong_offset, premature_reuse)},
    doc="Troubleshooting: a load succeeds, and the bytes are wrong.",
)
