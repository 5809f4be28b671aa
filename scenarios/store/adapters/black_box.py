"""Twelve scenarios of any store, seen from outside: what a client puts in comes out again, or not at all.

Each is a workload on a fresh folder below TMPDIR, run by the host program against subject processes
(bench.py); the checker `store` judges the history. Parameters are drawn, seeds replay and shrink as for
any scenario; a real store may behave differently from run to run, and the report says so where it does.

Not modelled: devices, sizes beyond 64 KiB, performance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from harness import PowerCut, Rank, Scenario, SmallDisk, World
from scenarios.store.adapters.adapter import Adapter, checked
from scenarios.store.adapters.bench import ROOM, Bench, Over, missing
from scenarios.store.adapters.checker import StoreChecker
from scenarios.store.adapters.history import History

SIZE_MAX = 65536
Size = Annotated[int, Meta(ge=1, le=SIZE_MAX)]
Sizes = Annotated[tuple[Size, ...], Meta(min_length=1, max_length=4)]
Shift = Annotated[int, Meta(ge=0, le=4095)]
DEFAULT = (4096, 10000)


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sizes: Sizes = DEFAULT


class RoundTrip(_Params, frozen=True):
    """sizes: bytes of each block. batches: of the dump, the blocks are dealt out in turn."""

    batches: Annotated[int, Meta(ge=1, le=3)] = 1


class Restart(_Params, frozen=True):
    """end: of the first process. after: how far into a dump of as many other blocks it is killed, in
    tenths of a millisecond."""

    end: Literal["close", "kill", "kill_in_dump"] = "kill"
    after: Annotated[int, Meta(ge=0, le=30)] = 3


class OutsideDamage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """blocks of one size, so that one may stand for another. damage: what happens to file number `which`
    (in name order), at `at` thousandths of its length. opened: while the store is open and has loaded
    each block once."""

    size: Size = 4096
    blocks: Annotated[int, Meta(ge=1, le=4)] = 2
    damage: Literal["bit_flip", "truncated", "swapped", "deleted"] = "bit_flip"
    opened: bool = False
    which: Annotated[int, Meta(ge=0, le=7)] = 0
    at: Annotated[int, Meta(ge=0, le=999)] = 900

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of each block."""
        return (self.size,) * self.blocks


class OddSizes(_Params, frozen=True):
    """source, target: how far behind the beginning of a page the tensors lie."""

    sizes: Sizes = (511, 1, 4097)
    source: Shift = 1
    target: Shift = 513


class Shortage(_Params, frozen=True):
    """short: of room on the disk, of room in each file, or of descriptors. room: bytes, or descriptors
    modulo four, that are left when twice as many blocks are dumped."""

    short: Literal["disk", "file", "descriptors"] = "file"
    room: Annotated[int, Meta(ge=0, le=SIZE_MAX)] = 6000


class PowerLoss(_Params, frozen=True):
    """when: after the last call, after a close, or so many tenths of a millisecond into a dump of as many
    other blocks. log_flushed: names may be there whose data is not."""

    when: Literal["stored", "closed", "in_dump"] = "stored"
    after: Annotated[int, Meta(ge=0, le=60)] = 10
    log_flushed: bool = False


class Clients(_Params, frozen=True):
    """clients: each dumps the blocks of all and one of its own, at the same time as the others."""

    clients: Annotated[int, Meta(ge=2, le=4)] = 2


class Missing(_Params, frozen=True):
    """missing: how many blocks are asked for that nobody dumped."""

    missing: Annotated[int, Meta(ge=1, le=4)] = 2


class Duplicates(_Params, frozen=True):
    """again: when a block is dumped twice: in one batch, later, or later with other bytes."""

    again: Literal["batch", "later", "other_bytes"] = "later"


class PartialBatch(_Params, frozen=True):
    """kept: how many of the blocks are committed (or dumped, where there is no commit)."""

    sizes: Sizes = (4096, 10000, 512)
    kept: Annotated[int, Meta(ge=0, le=4)] = 1


class LookupOrder(_Params, frozen=True):
    """order: of the blocks asked for, modulo one more than there are; that one is missing."""

    sizes: Sizes = (64, 64, 64)
    order: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=4)], ...], Meta(min_length=1, max_length=8)
    ] = (2, 3, 0, 0, 1)


def _all(params: Any) -> list[int]:
    return list(range(len(params.sizes)))


def _round_trip(bench: Bench, params: RoundTrip) -> None:
    client, blocks = bench.open(), _all(params)
    bench.lookup(client, blocks)
    for number in range(params.batches):
        bench.store(client, blocks[number :: params.batches])
    bench.lookup(client, blocks)
    bench.load(client, blocks)
    bench.load(client, blocks[::-1])
    bench.close(client)


def _restart(bench: Bench, params: Restart) -> None:
    client, blocks = bench.open(), _all(params)
    bench.store(client, blocks)
    others = [len(blocks) + block for block in blocks]
    if params.end == "close":
        bench.close(client)
    elif params.end == "kill":
        bench.kill(client)
    else:
        bench.kill_in_dump(client, others, params.after / 10_000)
    client = bench.open()
    bench.lookup(client, blocks)
    bench.load(client, blocks)
    if params.end == "kill_in_dump":
        for block in others:
            bench.load(client, [block])
        bench.store(client, others)
        bench.load(client, others)
    bench.close(client)


def _outside_damage(bench: Bench, params: OutsideDamage) -> None:
    client, blocks = bench.open(), _all(params)
    bench.store(client, blocks)
    opened = params.opened or not bench.history.adapter.survives_restart
    if opened:
        for block in blocks:
            bench.load(client, [block])
    else:
        bench.close(client)
    bench.damage(params.damage, params.which, params.at)
    if not opened:
        client = bench.open()
    bench.lookup(client, blocks)
    for block in blocks:
        bench.load(client, [block])
    bench.store(client, blocks, version=1)
    bench.load(client, blocks)


def _shortage(bench: Bench, params: Shortage) -> None:
    client, blocks = bench.open(), _all(params)
    others = [len(blocks) + block for block in [*blocks, *(len(blocks) + block for block in blocks)]]
    bench.store(client, blocks)
    room = params.room % 4 if params.short == "descriptors" else params.room
    bench.shortage(client, params.short, room)
    for block in others:
        bench.store(client, [block])
    for block in [*blocks, *others]:
        bench.load(client, [block])
    bench.relief()
    if not bench.history.adapter.survives_shortage:
        bench.close(client)
        client = bench.open()
    bench.load(client, blocks)
    bench.store(client, others)
    bench.load(client, others)


def _power_cut(bench: Bench, params: PowerLoss) -> None:
    client, blocks = bench.open(), _all(params)
    others = [len(blocks) + block for block in blocks]
    bench.store(client, blocks)
    if params.when == "closed":
        bench.close(client)
    if params.when == "in_dump":
        bench.cut_in_dump(client, others, params.after / 10_000, log_flushed=params.log_flushed)
    else:
        bench.cut(log_flushed=params.log_flushed)
    after_the_end(bench, blocks, others)


def after_the_end(bench: Bench, blocks: list[int], others: list[int]) -> int:
    """A client that opens the folder of one that has ended, loads all and stores all again; its number.

    blocks: that were stored before. others: whose dump the end may have met.
    """
    client = bench.open()
    bench.lookup(client, blocks)
    for block in [*blocks, *others]:
        bench.load(client, [block])
    bench.store(client, [*blocks, *others])
    bench.load(client, [*blocks, *others])
    return client


def _odd_sizes(bench: Bench, params: OddSizes) -> None:
    client, blocks = bench.open(), _all(params)
    bench.store(client, blocks)
    bench.load(client, blocks)
    for block in blocks:
        bench.load(client, [block])
    bench.close(client)


def _concurrent_clients(bench: Bench, params: Clients) -> None:
    clients, blocks = [bench.open() for _ in range(params.clients)], _all(params)
    jobs = {client: [*blocks, len(blocks) + client] for client in clients}
    bench.dump_together(jobs)
    for client in clients:
        bench.commit(client, jobs[client])
    everything = list(range(len(blocks) + len(clients)))
    bench.lookup(clients[-1], everything)
    bench.load_together({client: everything for client in clients})
    for client in clients:
        bench.close(client)


def _missing_blocks(bench: Bench, params: Missing) -> None:
    client, blocks = bench.open(), _all(params)
    absent = missing(params.missing)
    bench.lookup(client, absent)
    bench.load(client, absent)
    bench.store(client, blocks)
    bench.lookup(client, absent)
    bench.load(client, absent)
    bench.load(client, blocks)
    bench.close(client)


def _duplicates(bench: Bench, params: Duplicates) -> None:
    client, blocks = bench.open(), _all(params)
    if params.again == "batch":
        bench.store(client, [*blocks, blocks[0]])
    else:
        bench.store(client, blocks)
        bench.store(client, blocks, version=1 if params.again == "other_bytes" else 0)
    bench.lookup(client, [*blocks, *blocks])
    bench.load(client, [*blocks, *blocks])
    for block in blocks:
        bench.load(client, [block])
    bench.close(client)


def _empty_lists(bench: Bench, params: _Params) -> None:
    client, blocks = bench.open(), _all(params)
    for _ in range(2):
        bench.lookup(client, [])
        bench.store(client, [])
        bench.load(client, [])
        bench.store(client, blocks)
    bench.load(client, blocks)
    bench.close(client)


def _partial_batch(bench: Bench, params: PartialBatch) -> None:
    client, blocks = bench.open(), _all(params)
    kept = blocks[: params.kept]
    if bench.history.adapter.commits:
        bench.dump(client, blocks)
        bench.commit(client, kept)
    else:
        bench.dump(client, kept)
    if bench.history.adapter.survives_restart:
        bench.close(client)
        client = bench.open()
    bench.lookup(client, blocks)
    bench.load(client, blocks)
    bench.load(client, blocks[::-1])
    for block in kept:
        bench.load(client, [block])
    bench.close(client)


def _lookup_order(bench: Bench, params: LookupOrder) -> None:
    client, blocks = bench.open(), _all(params)
    bench.store(client, blocks)
    choices = [*blocks, *missing(1)]
    order = [choices[number % len(choices)] for number in params.order]
    bench.lookup(client, order)
    bench.lookup(client, order[::-1])
    bench.lookup(client, blocks)
    bench.close(client)


_Workload = Callable[[Bench, Any], None]
_WORKLOADS: dict[str, tuple[_Workload, type[msgspec.Struct], str]] = {
    "round_trip": (_round_trip, RoundTrip, "Blocks are dumped, looked up and loaded by one process."),
    "restart": (_restart, Restart, "Blocks survive a close, or a kill in a dump too."),
    "outside_damage": (
        _outside_damage, OutsideDamage, "A file is damaged between dump and load: miss or error, no hit.",
    ),
    "shortage": (
        _shortage, Shortage, "The disk gets full, files too large, descriptors few; then it is over.",
    ),
    "power_cut": (_power_cut, PowerLoss, "The power is cut under a real ext4."),
    "odd_sizes": (_odd_sizes, OddSizes, "Sizes and addresses that are multiples of nothing."),
    "concurrent_clients": (_concurrent_clients, Clients, "Several processes use one folder at once."),
    "missing_blocks": (_missing_blocks, Missing, "Blocks that nobody dumped miss."),
    "duplicates": (_duplicates, Duplicates, "A block is dumped twice: it is one of the two, whole."),
    "empty_lists": (_empty_lists, _Params, "Calls with no block are allowed and change nothing."),
    "partial_batch": (
        _partial_batch, PartialBatch, "Only some blocks of a batch are stored; those are right.",
    ),
    "lookup_order": (_lookup_order, LookupOrder, "A lookup says the same of a block in any order."),
}
NEEDS = {
    "outside_damage": ("survives_damage", False), "concurrent_clients": ("several_processes", False),
    "restart": ("survives_restart", False), "power_cut": ("survives_power_cut", "no"),
}


def black_box(adapter: type[Adapter], prefix: str = "") -> dict[str, Scenario]:
    """The scenarios of `adapter` by name, without those that are about what it does not promise.

    prefix: of the scenarios' names; a user's file needs none. Raises UsageError for a class that cannot
    be driven.
    """
    checked(adapter)
    return {
        name: Scenario(
            name=f"{prefix}{name}", host=host_of(adapter, workload), params=params, ranks=(1, 1),
            checkers=(StoreChecker(),), doc=f"{doc} ({adapter.__name__})",
            unavailable=_unavailable(adapter, name), subject=adapter.version if adapter.package else None,
        )
        for name, (workload, params, doc) in _WORKLOADS.items()
        if name not in NEEDS or getattr(adapter, NEEDS[name][0]) != NEEDS[name][1]
    }


def _unavailable(adapter: type[Adapter], name: str) -> Callable[[], str]:
    def unavailable() -> str:
        return adapter.missing() or (PowerCut.unavailable() if name == "power_cut" else "")

    return unavailable


def _disk(params: Any) -> PowerCut | SmallDisk | None:
    """The disk that the workload needs. Where no disk can be made small, files are limited instead."""
    if isinstance(params, PowerLoss):
        return PowerCut()
    if isinstance(params, Shortage) and params.short == "disk" and not SmallDisk.unavailable():
        return SmallDisk(ROOM)
    return None


def host_of(
    adapter: type[Adapter], workload: _Workload, disk_of: Callable[[Any], Any] = _disk
) -> Callable[[World, Any], History]:
    """The host program of a workload. disk_of: the disk that it needs for its parameters, or None."""

    def host(world: World, params: Any) -> History:
        world.dispatch(_nothing, device=0)
        shifts: Sequence[int] = (getattr(params, "source", 0), getattr(params, "target", 0))
        with (
            disk_of(params) or nullcontext() as disk,
            Bench(adapter, params.sizes, (shifts[0], shifts[1]), disk) as bench,
        ):
            with suppress(Over):
                workload(bench, params)
            return bench.history

    return host


def _nothing(rank: Rank) -> int:
    """The rank has no part in it: the host program drives the store."""
    return rank.index
