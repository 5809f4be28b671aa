"""Rung 11: the built-in all-reduce: a mesh and a ring behind one call.

Sum, maximum, minimum and product, in float32, float16 and int32. The mesh is rung 8's with its two
barriers, the ring is rung 10's. Both leave the window only when nobody reads one's part any more, so
calls of either algorithm, with any reduction, element type and size, may follow each other on the same
bytes. Their signals have different shapes, so each algorithm has a window of signals of its own; its
cells count that algorithm's calls.

Inputs are chosen so that every order of combining gives the same, exact result; factors are powers of
two. Not modelled: a choice of the algorithm by size, rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta

from harness import Buffer, Rank, Window, World, values
from systems.collectives import allreduce_mesh, allreduce_ring
from systems.collectives.allreduce_ring import Combine
from systems.collectives.rounds import Rounds, shared

Algorithm = Literal["mesh", "ring"]
Reduction = Literal["sum", "max", "min", "prod"]
Element = Literal["float32", "float16", "int32"]

COMBINE: dict[Reduction, Combine] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
}
DTYPE: dict[Element, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int32": torch.int32,
}
# Exponents of the factors: eight ranks' product is exact, and none is 1, whose loss nobody would see.
EXPONENTS: dict[Element, tuple[int, ...]] = {
    "float32": (-3, -2, -1, 1, 2, 3),
    "float16": (-1, 1),
    "int32": (1, 2, 3),
}


class Reductions(Rounds, frozen=True, forbid_unknown_fields=True):
    """sizes: elements a rank of each round. The others: what each round uses, over and over."""

    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=64)], ...], Meta(min_length=1, max_length=4)
    ] = (4, 7, 5, 2)
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1, max_length=2)] = ("mesh", "ring")
    ops: Annotated[tuple[Reduction, ...], Meta(min_length=1, max_length=4)] = (
        "prod", "sum", "max",
    )
    dtypes: Annotated[tuple[Element, ...], Meta(min_length=1, max_length=3)] = (
        "float32", "float16", "int32",
    )


def call_of(params: Reductions, round: int) -> tuple[Algorithm, Reduction, Element]:
    """Algorithm, reduction and element type of a round."""
    return (
        params.algorithms[round % len(params.algorithms)],
        params.ops[round % len(params.ops)],
        params.dtypes[round % len(params.dtypes)],
    )


def epoch_of(params: Reductions, round: int) -> int:
    """How often the algorithm of this round was called before."""
    used = [call_of(params, earlier)[0] for earlier in range(round + 1)]
    return used.count(used[-1]) - 1


def signal_shape(algorithm: Algorithm, size: int) -> list[int]:
    """The shape of the signals: mesh: a row a barrier, a cell a peer; ring: a row of one cell a step."""
    return allreduce_ring.signal_shape(size) if algorithm == "ring" else [2, size]


def fold(parts: Sequence[torch.Tensor], combine: Combine) -> torch.Tensor:
    """All parts combined, in rank order."""
    return functools.reduce(combine, parts)


def mesh(
    rank: Rank, window: Window, signals: Window, n: int, epoch: int, combine: Combine
) -> None:
    """Rung 8 with any reduction."""
    allreduce_mesh.all_have_staged(rank, signals, epoch)
    total = fold([rank.remote_load(window, peer, 0, n) for peer in range(rank.size)], combine)
    allreduce_mesh.all_have_read(rank, signals, epoch)
    rank.store(window, total)


def ring(
    rank: Rank, window: Window, signals: Window, n: int, epoch: int, combine: Combine
) -> None:
    """Rung 10 with any reduction."""
    allreduce_ring.allreduce(rank, window, signals, n, epoch, combine)


def allreduce(
    rank: Rank,
    window: Window,
    signals: Window,
    n: int,
    epoch: int,
    algorithm: Algorithm,
    op: Reduction,
) -> None:
    """Replace the first n elements of every part of the window by their reduction over all ranks."""
    if rank.size > 1:  # a lone rank's part is the result
        call = ring if algorithm == "ring" else mesh
        call(rank, window, signals, n, epoch, COMBINE[op])


def allreduce_builtin(
    rank: Rank,
    x: Buffer,
    out: Buffer,
    window: Window,
    signals: Window,
    n: int,
    epoch: int,
    algorithm: Algorithm,
    op: Reduction,
) -> None:
    """Row `rank.index` of out = the reduction of the rows of x; both [size, n]."""
    mine = rank.index * n
    rank.store(window, rank.load(x, mine, n))
    allreduce(rank, window, signals, n, epoch, algorithm, op)
    rank.store(out, rank.load(window, 0, n), mine)


def dispatch_round(world: World, *args: Any) -> None:
    """One dispatch a logical rank."""
    for r in range(len(world.device_ids)):
        world.dispatch(allreduce_builtin, *args, device=r)


def inputs(size: int, n: int, round: int, op: Reduction, element: Element) -> torch.Tensor:
    """[size, n]: row r is what rank r gives in `round`; each part of a product has a sign."""
    dtype = DTYPE[element]
    if op != "prod":
        rows = torch.stack([values(rank, n, round, dtype) for rank in range(size)])
        return -rows if op == "max" else rows  # so that zero is never the extreme one
    exponents = torch.tensor(EXPONENTS[element])
    mixed = torch.stack([values(rank, n, round, torch.int64) for rank in range(size)]) * 40503 >> 7
    signs = 1 - 2 * (mixed & 1)
    return (signs * 2.0 ** exponents[(mixed >> 1) % len(exponents)]).to(dtype)


def window_bytes(params: Reductions) -> int:
    """The size of one rank's part in bytes: what the longest round needs."""
    return max(
        n * DTYPE[call_of(params, round)[2]].itemsize for round, n in enumerate(params.sizes)
    )


def host(world: World, params: Reductions) -> dict[str, list[torch.Tensor]]:
    """The outputs of each round, one row a rank."""
    memory = world.alloc(window_bytes(params), name="window", init="poison")
    signals = {
        algorithm: world.alloc(
            signal_shape(algorithm, world.size), torch.int32, name=f"{algorithm}_signals"
        )
        for algorithm in dict.fromkeys(params.algorithms)
    }
    observed = {}
    for round, n in enumerate(params.sizes):
        algorithm, op, element = call_of(params, round)
        x = shared(inputs(world.size, n, round, op, element))
        out = shared(torch.zeros(world.size, n, dtype=DTYPE[element]))
        world.prepare(x, out)
        window = memory.view([n], DTYPE[element])
        epoch = epoch_of(params, round)
        dispatch_round(world, x, out, window, signals[algorithm], n, epoch, algorithm, op)
        observed[f"{op} {round}"] = list(out)
    return observed


def reduced(rows: torch.Tensor, op: Reduction) -> torch.Tensor:
    """[n]: the rows of [size, n] reduced by plain torch, in the rows' own dtype."""
    if op == "sum":
        return rows.sum(0, dtype=rows.dtype)
    if op == "prod":
        return rows.prod(0, dtype=rows.dtype)
    return rows.amax(0) if op == "max" else rows.amin(0)


def reference(params: Reductions, size: int) -> dict[str, list[torch.Tensor]]:
    """What `host` should return."""
    expected = {}
    for round, n in enumerate(params.sizes):
        _, op, element = call_of(params, round)
        expected[f"{op} {round}"] = [reduced(inputs(size, n, round, op, element), op)] * size
    return expected
