"""No checker finds anything in healthy programs, whatever the schedule; every kind has a remedy."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Hold, NotifyOp, Plan, Preempt, WaitCmp, run, scenario, values
from harness.checkers import CHECKERS
from harness.checkers.deadlock import ORDER
from harness.diagnosis.table import likely

F32, INT = torch.float32, torch.int32


def shifted(size: int) -> list[torch.Tensor]:
    return [values((r - 1) % size, 3, 1) for r in range(size)]


@scenario(reference=shifted, ranks=(1, 8))
def put_fence_notify(rank) -> torch.Tensor:
    data, cell = rank.window("data", 3, F32), rank.window("sig", 2, INT)
    right, left = (rank.index + 1) % rank.size, (rank.index - 1) % rank.size
    for turn in range(2):
        rank.put(data, right, values(rank.index, 3, turn))
        rank.fence()
        rank.notify(cell, right, 0, 1)
        rank.wait(cell, 0, turn + 1)
        got = rank.load(data, 0, 3)
        rank.notify(cell, left, 1, 1)
        rank.wait(cell, 1, turn + 1)
    return got


@scenario(reference=shifted, ranks=(1, 8))
def get_and_free(rank) -> torch.Tensor:
    for turn in range(2):
        win, mine = rank.window("data", 3, F32), rank.buffer(3, F32)
        rank.store(win, values(rank.index, 3, turn))
        rank.barrier()
        rank.get_nbi(mine, (rank.index - 1) % rank.size, win)
        rank.barrier()
        win.free()
        got = rank.load(mine, 0, 3)
    return got


@scenario(reference=shifted, ranks=(1, 8))
def slots_with_set(rank) -> torch.Tensor:
    data, cell = rank.window("data", (2, 3), F32), rank.window("slot", rank.size, INT)
    for turn in range(2):
        rank.put_signal(data, (rank.index + 1) % rank.size, values(rank.index, 3, turn),
                        3 * turn, cell, rank.index, turn + 1, op=NotifyOp.Set)
        rank.wait(cell, (rank.index - 1) % rank.size, turn + 1, cmp=WaitCmp.Ge)
        got = rank.load(data, 3 * turn, 3)
        rank.sync()
    return got


@scenario(reference=lambda size: [None] * size, ranks=(1, 8))
def epoch_barrier(rank) -> None:
    cell = rank.window("sig", 1, INT)
    for epoch in range(1, 4):
        for peer in range(rank.size):
            rank.notify(cell, peer, 0, 1)
        rank.wait(cell, 0, epoch * rank.size)


deviations = st.lists(
    st.one_of(
        st.builds(Hold, op=st.integers(0, 40), until=st.integers(0, 12)),
        st.builds(Preempt, at=st.integers(0, 60), to=st.integers(0, 7)),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    healthy=st.sampled_from([put_fence_notify, get_and_free, slots_with_set, epoch_barrier]),
    ranks=st.integers(1, 8), schedule=deviations,
)
def test_checkers_are_silent_on_healthy_programs(healthy, ranks, schedule):
    plan = Plan(scenario=healthy.name, params=healthy.params(), ranks=ranks,
                schedule=tuple(schedule))
    outcome = run(plan, scenario=healthy)
    assert outcome.notes == ()
    assert outcome.findings == ()


def test_report_order_puts_root_causes_first():
    assert [checker.name for checker in CHECKERS] == [
        "matching", "exceptions", "deadlock", "progress", "lifetime", "integrity"
    ]


def test_every_deadlock_class_has_a_cause_and_a_remedy():
    for kind in ORDER:
        cause, remedy = likely(f"deadlock/{kind}")
        assert cause
        assert remedy
    assert likely("deadlock/other") == ("", "")
