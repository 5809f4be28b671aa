"""An all-gather through three stages that take turns, each cleaned for the call after the next.

A row goes into the stage of its call with a mark that counts up the stage's cell; a stage is read when
it holds a mark of each peer. Nobody waits for readers. After call e a rank takes the marks off the stage
of call e - 1, which is the one that call e + 2 fills: no peer can be there, as it needs this rank's row
of call e + 1 first. The stage of call e + 1 may hold a fast peer's row already.

Source: vLLM pull request 53000, which polls the data words themselves; here marks have a cell.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from msgspec import Meta

from harness import Buffer, Rank, Window, World
from systems.collectives import barrier
from systems.collectives.rounds import Rounds, in_rounds

STAGES = 3

reference = barrier.reference


class Calls(Rounds, frozen=True, forbid_unknown_fields=True):
    """As Rounds, with enough of them to use each stage again."""

    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=64)], ...], Meta(min_length=1, max_length=6)
    ] = (4, 7, 2, 5, 3)


def stage_to_clean(call: int) -> int:
    """The stage that is cleaned at the end of a call: that of the call before."""
    return (call + 2) % STAGES


def clean(rank: Rank, cells: Window, stage: int) -> None:
    """Take all marks off a stage."""
    rank.store(cells, 0, stage)


def fill(rank: Rank, rows: Window, cells: Window, own: torch.Tensor, stage: int) -> None:
    """Write one's row into every rank's stage, each with a mark that follows it."""
    at = (stage * rank.size + rank.index) * rows.shape[2]
    rank.store(rows, own, at)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.put_signal(rows, peer, own, at, cells, stage, 1)


def take(rank: Rank, rows: Window, cells: Window, n: int, stage: int) -> torch.Tensor:
    """The rows of all ranks, [size * n], when all are here."""
    rank.wait(cells, stage, rank.size - 1)
    places = [(stage * rank.size + peer) * rows.shape[2] for peer in range(rank.size)]
    return torch.cat([rank.load(rows, at, n) for at in places])


def gather_staged(
    rank: Rank, x: Buffer, out: Buffer, rows: Window, cells: Window, n: int, call: int
) -> None:
    """Row `rank.index` of out = all rows of x. x: [size, n], out: [size, size * n]."""
    fill(rank, rows, cells, rank.load(x, rank.index * n, n), call % STAGES)
    taken = take(rank, rows, cells, n, call % STAGES)
    clean(rank, cells, stage_to_clean(call))
    rank.store(out, taken, rank.index * rank.size * n)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(gather_staged, *args, device=r)


def host(world: World, params: Calls) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    rows = world.alloc([STAGES, world.size, max(params.sizes)], torch.float32, name="rows")
    cells = world.alloc([STAGES], torch.int32, name="cells")
    return in_rounds(
        world, params.sizes, "board",
        lambda x, out, n, round: dispatch_round(world, x, out, rows, cells, n, round),
        taken=world.size,
    )
