"""The five faults that this product is known by, each caught on the collectives.

For each: the exact plan, the finding it gives, and the same plan without the fault, which passes.
"""

from dataclasses import dataclass

import msgspec
import pytest

from faults.addressing import MisalignedBase, OffsetOffByOne
from faults.host import MissingShareMemory
from faults.ordering import NotifyAfterWait, SkippedBarrier
from harness import Plan, Verdict, registry, run
from harness.plan import decode_wire, encode, from_wire


@dataclass(frozen=True)
class Card:
    """A fault that users ask about, planted in one rung of the collectives' ladder.

    rank: the one to look at first, as the finding says (-1: the host).
    """

    title: str
    rung: str
    ranks: int
    faults: tuple
    finding: str
    rank: int
    bug: str | None = None
    schedule: tuple = ()

    @property
    def plan(self):
        name = f"collectives.{self.rung}"
        params = registry.find(name).params()
        return Plan(
            scenario=name, params=params, ranks=self.ranks, bug=self.bug, faults=self.faults,
            schedule=self.schedule,
        )


CARDS = [
    Card(
        "misaligned buffer, silent", "allreduce_mesh", 4, (MisalignedBase(rank=2),),
        "integrity/unwritten_memory", 0,
    ),
    Card(
        "misaligned buffer, typed", "allreduce_mesh", 4,
        (MisalignedBase(rank=2, nth=1, nbytes=1),), "exceptions/misaligned", 2,
    ),
    Card(
        "missing share_memory_", "allreduce_mesh", 4, (MissingShareMemory(),),
        "integrity/stale_private_memory", 0,
    ),
    Card(
        "notify after its wait, on both ranks", "allreduce_mesh", 2,
        (NotifyAfterWait(rank=0), NotifyAfterWait(rank=1)), "deadlock/cycle", 0,
    ),
    Card(
        "notify after its wait, on one rank", "dynamic_rank_count", 4,
        (NotifyAfterWait(rank=0),), "deadlock/cycle", 0,
    ),
    Card(
        "wrong offset, other elements", "allreduce_mesh", 4, (OffsetOffByOne(rank=1),),
        "integrity/wrong_value", 0,
    ),
    Card(
        "wrong offset, out of the window", "put_get", 4, (OffsetOffByOne(rank=1, nth=12),),
        "exceptions/out_of_bounds", 1,
    ),
    Card(
        "missing barrier call before the reads", "window_buffer", 4, (SkippedBarrier(rank=3),),
        "matching/missing_call", 3,
    ),
    Card(
        "missing barrier call between rounds", "remote_load_store", 4,
        (SkippedBarrier(rank=3, nth=1),), "matching/missing_call", 3,
    ),
    Card(
        "missing barrier, on every rank", "allreduce_mesh", 2, (), "integrity/unwritten_memory", 0,
        bug="missing_barrier", schedule=(),
    ),
]
title = pytest.mark.parametrize("card", CARDS, ids=lambda card: card.title)


@title
def test_is_caught(card):
    outcome = run(card.plan)
    assert outcome.run.fired == [1] * len(card.faults)
    assert outcome.verdict is Verdict.FAIL
    first = outcome.findings[0]
    assert (first.name, first.rank) == (card.finding, card.rank)


@title
def test_passes_without_the_fault(card):
    outcome = run(msgspec.structs.replace(card.plan, bug=None, faults=()))
    assert outcome.verdict is Verdict.PASS, outcome.findings


@title
def test_is_caught_again_from_its_json(card):
    scenario = registry.find(card.plan.scenario)
    plan = from_wire(decode_wire(encode(card.plan)), scenario.params, registry.faults())
    assert plan == card.plan
    first, again = run(card.plan), run(plan)
    assert again.run.identity() == first.run.identity()
    assert [f.identity for f in again.findings] == [f.identity for f in first.findings]
