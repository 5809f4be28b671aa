"""Every fault fires, changes an outcome, and leaves alone what it does not concern.

The table has a row for each fault; a fault without one fails `test_every_fault_has_a_row`.
"""

from dataclasses import dataclass

import pytest
import torch

from faults.addressing import (
    MisalignedBase,
    NonContiguousSource,
    OffsetOffByOne,
    WindowCountsRanks,
    WrongPeer,
    WrongShape,
)
from faults.caches import MissingInvalidate, MissingPublish
from faults.environment import Crash
from faults.host import DispatchLoopTooShort, MissingShareMemory, ScalarBeforeTensor
from faults.ordering import DroppedFence, DroppedQuiet, NotifyAfterWait, SkippedBarrier
from faults.signals import (
    DroppedNotify,
    DuplicatedNotify,
    ThresholdOffByOne,
    WrongCell,
    WrongNotifyOp,
)
from harness import (
    Fault,
    Hold,
    NotifyOp,
    Plan,
    Scenario,
    Verdict,
    Visibility,
    WaitCmp,
    registry,
    run,
    scenario,
    values,
)

N = 4


def from_left(size):
    return [values((rank - 1) % size, N) for rank in range(size)]


# Programs ---------------------------------------------------------------------------------------


@scenario(reference=from_left, ranks=(1, 8))
def push(rank):
    """Put to the right neighbour, fence, notify, wait, load."""
    data = rank.window("data", 2 * N, torch.float32)
    cells = rank.window("cells", 2, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(data, right, values(rank.index, N), 1)
    rank.fence()
    rank.notify(cells, right, 0, 1)
    rank.wait(cells, 0, 1)
    return rank.load(data, 1, N)


@scenario(reference=from_left)
def push_signal(rank):
    """As push, with one put_signal."""
    data = rank.window("data", N, torch.float32)
    cells = rank.window("cells", 2, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put_signal(data, right, values(rank.index, N), 0, cells, 0, 1)
    rank.wait(cells, 0, 1, cmp=WaitCmp.Eq)
    return rank.load(data, 0, N)


@scenario(reference=from_left)
def pull(rank):
    """Store, barrier, get_nbi from the left neighbour, quiet, load, barrier."""
    data = rank.window("data", N, torch.float32)
    landed = rank.buffer(N, torch.float32)
    rank.store(data, values(rank.index, N))
    rank.barrier()
    rank.get_nbi(landed, (rank.index - 1) % rank.size, data)
    rank.quiet()
    result = rank.load(landed, 0, N)
    rank.barrier()
    return result


@scenario(reference=from_left)
def read(rank):
    """Store, sync, remote_load from the left neighbour, sync."""
    data = rank.window("data", N, torch.float32)
    rank.store(data, values(rank.index, N))
    rank.sync()
    result = rank.remote_load(data, (rank.index - 1) % rank.size, 0, N)
    rank.sync()
    return result


@scenario(reference=from_left)
def write(rank):
    """remote_store to the right neighbour, barrier, load."""
    data = rank.window("data", N, torch.float32)
    rank.remote_store(data, (rank.index + 1) % rank.size, values(rank.index, N))
    rank.barrier()
    return rank.load(data, 0, N)


@scenario(reference=from_left)
def staged(rank):
    """Store, notify the right neighbour, wait, remote_load from the left one, meet."""
    data = rank.window("data", N, torch.float32)
    cells = rank.window("cells", 1, torch.int32)
    rank.store(data, values(rank.index, N))
    rank.notify(cells, (rank.index + 1) % rank.size, 0, 1)
    rank.wait(cells, 0, 1)
    result = rank.remote_load(data, (rank.index - 1) % rank.size, 0, N)
    rank.barrier()
    return result


@scenario(reference=lambda size: [values((rank - 1) % size, N, 1) for rank in range(size)])
def again(rank):
    """As push, twice; what came first is read too, and the answer to it awaited."""
    data = rank.window("data", N, torch.float32)
    cells = rank.window("cells", 2, torch.int32)
    right, left = (rank.index + 1) % rank.size, (rank.index - 1) % rank.size
    for round in range(2):
        rank.put(data, right, values(rank.index, N, round))
        rank.fence()
        rank.notify(cells, right, 0, 1)
        rank.wait(cells, 0, round + 1)
        result = rank.load(data, 0, N)
        if round == 0:
            rank.notify(cells, left, 1, 1)
            rank.remote_load(cells, rank.index, 1, 1)
            while rank.remote_load(cells, rank.index, 1, 1).item() < 1:
                pass
    return result


@scenario(reference=lambda size: [None] * size)
def ask(rank):
    """Rank 0 notifies the others and waits for their answers, which come after their wait."""
    cells = rank.window("cells", 1, torch.int32)
    if rank.index:
        rank.wait(cells, 0, 1)
        rank.notify(cells, 0, 0, 1)
    else:
        for peer in range(1, rank.size):
            rank.notify(cells, peer, 0, 1)
        rank.wait(cells, 0, rank.size - 1)


@scenario(reference=lambda size: [None] * size)
def meet(rank):
    """Every rank sets a cell of its own in every other's window, and waits for theirs."""
    cells = rank.window("cells", rank.size, torch.int32)
    peers = [peer for peer in range(rank.size) if peer != rank.index]
    for peer in peers:
        rank.notify(cells, peer, rank.index, 7, op=NotifyOp.Set)
    for peer in peers:
        rank.wait(cells, peer, 7, cmp=WaitCmp.Eq)


@scenario(reference=lambda size: [torch.tensor(0.0)] * size, ranks=(1, 8))
def alone(rank):
    """No peer, no notify, no offset but zero: little to plant a bug in."""
    return torch.zeros(())


def _copy(rank, source, target, window, count):
    rank.store(window, rank.load(source, rank.index * count, count))
    rank.store(target, rank.load(window, 0, count), rank.index * count)


def _hosted(world, params):
    source = torch.cat([values(rank, N) for rank in range(world.size)]).share_memory_()
    target = torch.zeros(N * world.size).share_memory_()
    window = world.alloc(4 * N).view(N, torch.float32)
    world.prepare(source, target)
    for device in range(world.size):
        world.dispatch(_copy, source, target, window, N, device=device)
    return {"target": [target] * world.size}


def _concatenated(params, size):
    return {"target": [torch.cat([values(rank, N) for rank in range(size)])] * size}


hosted = Scenario(name="hosted", host=_hosted, reference=_concatenated)


# The table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A fault in a program where it fires and shows.

    expects: the finding, or None where the program survives. spares: a program (in a world of
    spares_ranks, if given) in which the fault cannot fire.
    """

    fault: Fault
    program: Scenario
    expects: str | None
    spares: Scenario
    ranks: int = 3
    schedule: tuple = ()
    spares_ranks: int = 0
    caches: str = ""  # a delivery switch


ROWS = [
    Row(Crash(rank=1, nth=4), push, None, alone),
    Row(Crash(rank=0, nth=1), ask, None, alone, ranks=2),
    Row(NotifyAfterWait(rank=0), ask, "deadlock/cycle", pull, ranks=2),
    Row(DroppedFence(rank=0), push, "integrity/unwritten_memory", ask, schedule=(Hold(2),)),
    Row(DroppedQuiet(rank=1), pull, "integrity/unwritten_memory", push, schedule=(Hold(0),)),
    Row(SkippedBarrier(rank=1, nth=1), pull, "deadlock/missing_arrival", push),
    Row(SkippedBarrier(rank=1, nth=0), read, "deadlock/missing_arrival", push),
    Row(DroppedNotify(rank=0), push, "deadlock/missing_notify", pull),
    Row(DroppedNotify(rank=0), push_signal, "deadlock/missing_notify", write),
    Row(DuplicatedNotify(rank=0), push_signal, "deadlock/overshoot", pull),
    Row(WrongNotifyOp(rank=2), ask, "deadlock/overwritten_signal", pull),
    Row(WrongCell(rank=0), meet, "deadlock/wrong_cell", ask),
    Row(WrongCell(rank=2, nth=1), meet, "deadlock/wrong_cell", pull),
    Row(ThresholdOffByOne(rank=1), push, "deadlock/missing_notify", pull),
    Row(ThresholdOffByOne(rank=1, delta=-1), push, "integrity/unwritten_memory", pull),
    Row(WrongPeer(rank=0), push, "integrity/unwritten_memory", push, spares_ranks=1),
    Row(WrongPeer(rank=0, nth=1), push, "deadlock/missing_notify", hosted),
    Row(WrongPeer(rank=0), pull, "integrity/wrong_value", hosted),
    Row(WrongPeer(rank=0), read, "integrity/wrong_value", hosted),
    Row(WrongPeer(rank=0), write, "integrity/unwritten_memory", hosted),
    Row(OffsetOffByOne(rank=0), push, "integrity/unwritten_memory", ask),
    Row(OffsetOffByOne(rank=0, delta=-1), push, "integrity/wrong_value", ask),
    Row(OffsetOffByOne(rank=0), read, "exceptions/out_of_bounds", ask),
    Row(OffsetOffByOne(rank=0, delta=-1), write, "exceptions/out_of_bounds", ask),
    Row(WrongShape(rank=0), push, "integrity/unwritten_memory", ask),
    Row(WrongShape(rank=0, nth=1), push, "integrity/wrong_shape", ask),
    Row(WrongShape(rank=0, nth=1), pull, "integrity/unwritten_memory", ask),
    Row(
        MissingPublish(rank=1), staged, "integrity/unwritten_memory", pull, ranks=2,
        schedule=(Hold(2),), caches="delayed",
    ),
    Row(
        MissingInvalidate(rank=1, nth=1), again, "integrity/stale_value", pull, ranks=2,
        caches="stale",
    ),
    Row(MisalignedBase(rank=1), push, "integrity/wrong_value", alone),
    Row(MisalignedBase(rank=1, nth=1, nbytes=1), push, "exceptions/misaligned", alone),
    Row(MisalignedBase(rank=1, nbytes=2), push, "integrity/wrong_value", alone),
    Row(NonContiguousSource(rank=2), push, "exceptions/non_contiguous", ask),
    Row(NonContiguousSource(rank=2), hosted, "exceptions/non_contiguous", ask),
    Row(WindowCountsRanks(rank=1), push, "matching/different_call", alone),
    Row(WindowCountsRanks(), hosted, "exceptions/out_of_bounds", alone),
    Row(MissingShareMemory(), hosted, "integrity/stale_private_memory", push),
    Row(ScalarBeforeTensor(rank=1), hosted, "exceptions/dispatch_error", push),
    Row(DispatchLoopTooShort(), hosted, "exceptions/dispatch_error", alone, spares_ranks=1),
]


def plan_of(row, *, program=None, ranks=None, faulty=True):
    program = program or row.program
    return Plan(
        scenario=program.name, params=program.params(), ranks=ranks or row.ranks,
        faults=(row.fault,) if faulty else (), schedule=row.schedule,
        visibility=Visibility(**({row.caches: True} if row.caches else {})),
    )


# Timing faults are lowered to deviations and rewrite nothing: test_timing.py has their rows. Faults of
# the disk need programs that have one, and those of a store's client a store: test_storage.py and
# test_memory_faults.py have theirs. Those of real processes need them: test_process_faults.py; those of a
# launcher a torch.distributed program: test_launch.py.
REWRITING = {
    name: fault for name, fault in registry.faults().items()
    if not fault.lowers
    and fault.__module__ not in ("faults.storage", "faults.memory", "faults.processes", "faults.launch")
}


def title(row):
    return f"{row.fault.tag()}-{row.program.name}"


def test_every_fault_has_a_row():
    assert {row.fault.tag() for row in ROWS} == set(REWRITING)


def test_every_fault_says_what_it_does_on_one_line():
    for name, fault in registry.faults().items():
        first = (fault.__doc__ or "").split("\n")[0]
        assert first.endswith((".", ".)")), name
        assert fault.family in ("environment", "bug"), name


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_fires_once_and_is_recorded(row):
    record = run(plan_of(row), scenario=row.program).run
    assert record.fired == [1]
    assert [event.kind for event in record.events].count("fault") <= 1


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_changes_the_outcome(row):
    without = run(plan_of(row, faulty=False), scenario=row.program)
    assert without.verdict is Verdict.PASS, without.findings
    outcome = run(plan_of(row), scenario=row.program)
    names = [finding.name for finding in outcome.findings]
    if row.expects is None:
        assert names == []
        assert outcome.verdict is Verdict.PASS
        assert outcome.run.identity() != without.run.identity()
    else:
        assert row.expects in names


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_does_not_fire_where_it_does_not_apply(row):
    ranks = row.spares_ranks or row.ranks
    without = run(plan_of(row, program=row.spares, ranks=ranks, faulty=False), scenario=row.spares)
    outcome = run(plan_of(row, program=row.spares, ranks=ranks), scenario=row.spares)
    assert outcome.run.fired == [0]
    assert outcome.run.identity() == without.run.identity()
    assert outcome.run.value_identity() == without.run.value_identity()
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.notes == (f"fault {row.fault!r} never fired",)


def test_survivors_of_a_crash_see_which_rank_is_lost():
    row = next(row for row in ROWS if isinstance(row.fault, Crash))
    record = run(plan_of(row), scenario=row.program).run
    assert record.dead == [1]
    assert record.peers_lost == [2]
    assert record.failures == []
    assert [event.owner for event in record.events if event.kind == "crash"] == [1]


def test_a_crash_counts_operations_of_every_kind():
    """Rank 0 of push makes seven: window, window, put, fence, notify, wait, load."""
    for nth in range(8):
        plan = Plan(
            scenario="push", params=push.params(), ranks=2, faults=(Crash(rank=0, nth=nth),)
        )
        record = run(plan, scenario=push).run
        assert record.fired == [int(nth < 7)]
        done = [e.kind for e in record.events if e.owner == 0]
        assert ("load" in done) == (nth == 7)


def test_a_deferred_notify_comes_at_the_end_when_no_wait_follows():
    plan = Plan(
        scenario="ask", params=ask.params(), ranks=2, faults=(NotifyAfterWait(rank=1),)
    )
    outcome = run(plan, scenario=ask)
    assert outcome.run.fired == [1]
    assert outcome.verdict is Verdict.PASS


def test_the_identity_of_a_faulty_run_repeats():
    for row in ROWS:
        first = run(plan_of(row), scenario=row.program)
        second = run(plan_of(row), scenario=row.program)
        assert first.run.identity() == second.run.identity(), row
        assert [f.identity for f in first.findings] == [f.identity for f in second.findings], row
