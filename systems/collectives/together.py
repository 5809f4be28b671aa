"""Rung 16: broadcast, all-reduce and all-gather in one program.

A step of data-parallel training in small: the root's weights go to everybody, everybody's gradient
(its row plus the weights) is summed up, everybody's share (its row plus the sum) is gathered. The
root is another rank in each step. All-reduce and all-gather are those of rungs 8 and 13; the
broadcast is a put_signal to each rank with one credit, given back when the weights are taken.

Each phase has windows of its own, for data and for signals. The all-reduce's cells count rounds and
never go back; those of the other two are credits, which must be at zero when a phase begins: it can
share its window with neither. Nor can the shares be gathered where the sum is: one rank may push its
share while another, behind the same barrier, has yet to store the sum. The broadcast has no cell that
says "taken": nobody comes out of the all-reduce's first barrier, so no root can begin the next step,
before all have taken the weights.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from harness import Buffer, Rank, Window, World
from systems.collectives.allgather import allgather
from systems.collectives.allreduce_mesh import allreduce
from systems.collectives.rounds import Rounds, in_rounds, inputs


class Phases(NamedTuple):
    """A window for each phase."""

    broadcast: Window
    reduce: Window
    gather: Window


def root_of(round: int, size: int) -> int:
    """The rank whose row is broadcast in this round."""
    return (round + 1) % size


def send_weights(rank: Rank, landing: Window, credit: Window, own: torch.Tensor) -> None:
    """Put one's row to every rank, this one included, each with a credit that follows it."""
    for peer in range(rank.size):
        rank.put_signal(landing, peer, own, 0, credit, 0, 1)


def give_back(rank: Rank, credit: Window) -> None:
    """Take the awaited credit off one's own cell, and see to it that it is gone."""
    rank.notify(credit, rank.index, 0, -1)
    rank.quiet()


def take_weights(rank: Rank, landing: Window, credit: Window, n: int) -> torch.Tensor:
    """The weights, as soon as the root's put has come."""
    rank.wait(credit, 0, 1)
    weights = rank.load(landing, 0, n)
    give_back(rank, credit)
    return weights


def broadcast(
    rank: Rank, landing: Window, credit: Window, own: torch.Tensor, root: int
) -> torch.Tensor:
    """The row of `root` on every rank."""
    if rank.index == root:
        send_weights(rank, landing, credit, own)
    return take_weights(rank, landing, credit, own.numel())


def summed(
    rank: Rank, window: Window, signals: Window, own: torch.Tensor, round: int
) -> torch.Tensor:
    """The sum of all ranks' rows."""
    rank.store(window, own)
    allreduce(rank, window, signals, own.numel(), round)
    return rank.load(window, 0, own.numel())


def together(
    rank: Rank, x: Buffer, out: Buffer, data: Phases, signals: Phases, n: int, round: int
) -> None:
    """Row `rank.index` of out = the shares of all ranks. x: [size, n], out: [size, size * n]."""
    own = rank.load(x, rank.index * n, n)
    root = root_of(round, rank.size)
    weights = broadcast(rank, data.broadcast, signals.broadcast, own, root)
    total = summed(rank, data.reduce, signals.reduce, own + weights, round)
    shares = allgather(rank, data.gather, signals.gather, own + total)
    rank.store(out, shares, rank.index * rank.size * n)


def step(rank: Rank, x: Buffer, out: Buffer, *rest: Any) -> None:
    """`together`, with its windows one by one, as a dispatch passes them."""
    *windows, n, round = rest
    together(rank, x, out, Phases(*windows[:3]), Phases(*windows[3:]), n, round)


def data_windows(world: World, n: int) -> tuple[Any, Any, Any]:
    """By phase: weights and sum of up to n elements, and as many from each rank."""
    return (
        world.alloc([n], torch.float32, name="weights"),
        world.alloc([n], torch.float32, name="sum"),
        world.alloc([world.size, n], torch.float32, name="shares"),
    )


def signal_windows(world: World) -> tuple[Any, Any, Any]:
    """By phase: one cell for the broadcast, two rows of a cell a rank for each of the others."""
    return (
        world.alloc([1], torch.int32, name="credit"),
        world.alloc([2, world.size], torch.int32, name="counts"),
        world.alloc([2, world.size], torch.int32, name="credits"),
    )


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(step, *args, device=r)


def host(world: World, params: Rounds) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    windows = (*data_windows(world, max(params.sizes)), *signal_windows(world))
    return in_rounds(
        world, params.sizes, "shares",
        lambda x, out, n, round: dispatch_round(world, x, out, *windows, n, round),
        taken=world.size,
    )


def reference(params: Rounds, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        x = inputs(size, n, round)
        total = (x + x[root_of(round, size)]).sum(0)
        expected[f"shares {round}"] = [(x + total).reshape(-1)] * size
    return expected
