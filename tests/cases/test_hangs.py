"""Labelled hangs: every class, several world sizes, each named with its class, culprit, cell, counts
and line. The engine sees them at once: no time limit takes part.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from harness import NotifyOp, Plan, Scenario, WaitCmp, run, scenario
from harness.checkers.deadlock import Deadlock

INT = torch.int32


def made(lanes: int = 1):
    def make(program) -> Scenario:
        silent = [None] * lanes if lanes > 1 else None
        return scenario(reference=lambda size: [silent] * size, ranks=(1, 8), lanes=lanes)(program)

    return make


def others(rank):
    return [peer for peer in range(rank.size) if peer != rank.index]


@made()
def last_rank_skips_the_first(rank):
    cell = rank.window("sig", 2, INT)
    for peer in others(rank):
        if not (rank.index == rank.size - 1 and peer == 0):
            rank.notify(cell, peer, 1, 1)
    rank.wait(cell, 1, rank.size - 1)  # blocked


@made()
def one_notifies_once_instead_of_twice(rank):
    cell = rank.window("sig", 1, INT)
    for epoch in (1, 2):
        for peer in others(rank):
            if not (rank.index == 1 and epoch == 2):
                rank.notify(cell, peer, 0, 1)
    rank.wait(cell, 0, 2 * (rank.size - 1))  # blocked


@made()
def a_slot_is_left_out(rank):
    cell = rank.window("slot", rank.size, INT)
    for peer in others(rank):
        if not (rank.index == 2 and peer == 1):
            rank.notify(cell, peer, rank.index, 1)
    for source in others(rank):
        rank.wait(cell, source, 1)  # blocked


@made()
def nobody_notifies(rank):
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, 1)  # blocked


@made()
def threshold_counts_oneself(rank):
    cell = rank.window("sig", 1, INT)
    for peer in others(rank):
        rank.notify(cell, peer, 0, 1)
    rank.wait(cell, 0, rank.size)  # blocked


@made()
def ring_waits_first(rank):
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, 1)  # blocked
    rank.notify(cell, (rank.index + 1) % rank.size, 0, 1)


@made()
def all_wait_first(rank):
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, rank.size - 1)  # blocked
    for peer in others(rank):
        rank.notify(cell, peer, 0, 1)


@made()
def equal_is_passed_over(rank):
    cell = rank.window("sig", 1, INT)
    if rank.index:
        rank.notify(cell, 0, 0, 2)
    rank.sync()
    if rank.index == 0:
        rank.wait(cell, 0, 1, cmp=WaitCmp.Eq)  # blocked


@made()
def set_replaces_what_was_added(rank):
    cell = rank.window("sig", 1, INT)
    last = rank.size - 1
    if 0 < rank.index < last:
        rank.notify(cell, 0, 0, 1)
    rank.barrier()
    if rank.index == last:
        rank.notify(cell, 0, 0, 1, op=NotifyOp.Set)
    if rank.index == 0:
        rank.wait(cell, 0, last)  # blocked


@made()
def index_of_the_receiver(rank):
    """The sender indexes the cells by the receiver, the receiver by the sender."""
    cell = rank.window("slot", rank.size + 1, INT)
    right = (rank.index + 1) % rank.size
    rank.notify(cell, right, rank.size if rank.index == 0 else rank.index, 1)
    rank.wait(cell, (rank.index - 1) % rank.size, 1)  # blocked


@made()
def one_rank_skips_the_sync(rank):
    rank.sync()
    if rank.index != rank.size - 1:
        rank.sync()  # blocked


@made()
def one_rank_skips_the_window(rank):
    if rank.index != 1:
        rank.window("late", 4, INT)  # blocked


@made()
def a_group_waits_for_a_member(rank):
    group = [0, 2, 3] if rank.index in (0, 2, 3) else [1]
    if rank.index != 3:
        rank.barrier(group)  # blocked


@made()
def a_group_lacks_a_notify(rank):
    group = [r for r in range(rank.size) if r % 2 == 0]
    if rank.index in group:
        cell = rank.window("pad", 1, INT, group=group)
        for peer in group:
            if peer != rank.index and not (rank.index == 2 and peer == 0):
                rank.notify(cell, peer, 0, 1)
        rank.wait(cell, 0, len(group) - 1)  # blocked


@made(lanes=2)
def a_lane_is_not_told(rank):
    cell = rank.window("sig", 2, INT) if rank.lane == 0 else None
    if rank.lane == 0:
        if rank.index:
            rank.notify(cell, 0, 0, 1)
        else:
            rank.wait(cell, 0, rank.size)  # blocked


@made(lanes=2)
def lanes_wait_in_a_circle(rank):
    if rank.lane == 0:
        cell = rank.window("sig", 1, INT)
        rank.wait(cell, 0, 1)  # blocked
        rank.notify(cell, (rank.index + 1) % rank.size, 0, 1)


@made()
def takes_back_one_too_many(rank):
    cell = rank.window("sig", 1, INT)
    for _ in range(2):
        for peer in others(rank):
            rank.notify(cell, peer, 0, 1)
        rank.wait(cell, 0, rank.size - 1)  # blocked
        rank.notify(cell, rank.index, 0, -rank.size)
        rank.quiet()
        rank.barrier()


@dataclass(frozen=True)
class Hang:
    """A program in a world, with what its finding must say. culprit: the rank it names first."""

    program: Scenario
    ranks: int
    kind: str
    culprit: int
    says: tuple[str, ...]
    also: tuple[str, ...] = field(default=())  # findings of the same root before this one


def ids(hang: Any) -> str:
    return f"{hang.program.name}-{hang.ranks}"


HANGS = (
    *(
        Hang(last_rank_skips_the_first, size, "missing_notify", size - 1,
             (f"'sig'[1] = {size - 2}, awaited >= {size - 1}", f"rank {size - 1}"))
        for size in (2, 3, 4, 8)
    ),
    *(
        Hang(one_notifies_once_instead_of_twice, size, "missing_notify", 1,
             (f"= {2 * size - 3}, awaited >= {2 * size - 2}", "rank 1 notified it once, others twice"))
        for size in (3, 5)
    ),
    *(
        Hang(a_slot_is_left_out, size, "missing_notify", 2,
             ("rank 1 is blocked", "'slot'[2] = 0, awaited >= 1", "rank 2 could have"))
        for size in (4, 8)
    ),
    Hang(nobody_notifies, 1, "missing_notify", 0, ("'sig'[0] = 0", "nobody ever notified it")),
    Hang(nobody_notifies, 5, "missing_notify", 1, ("'sig'[0] = 0", "nobody ever notified it")),
    *(
        Hang(threshold_counts_oneself, size, "missing_notify", 1,
             (f"= {size - 1}, awaited >= {size}", "once", "which is not enough"))
        for size in (2, 4)
    ),
    *(
        Hang(ring_waits_first, size, "cycle", 0, ("wait for each other", "rank 0 for rank"))
        for size in (2, 3, 8)
    ),
    Hang(all_wait_first, 4, "cycle", 0, ("ranks 0, 1, 2 and 3 wait for each other",)),
    *(
        Hang(equal_is_passed_over, size, "overshoot", 0,
             (f"'sig'[0] = {2 * size - 2}, awaited == 1", "from 0 to 2", "past the 1"))
        for size in (2, 4)
    ),
    *(
        Hang(set_replaces_what_was_added, size, "overwritten_signal", size - 1,
             (f"'sig'[0] = 1, awaited >= {size - 1}", "Set 1, event", f"overwrote the {size - 2}"))
        for size in (3, 5)
    ),
    *(
        Hang(index_of_the_receiver, size, "wrong_cell", 0,
             ("rank 1 is blocked", "'slot'[0] = 0", f"went to 'slot'[{size}] on rank 1"))
        for size in (3, 6)
    ),
    *(
        Hang(one_rank_skips_the_sync, size, "missing_arrival", size - 1,
             (f"{size - 1} of {size} ranks arrived", f"rank {size - 1} never arrived"),
             ("matching/missing_call",))
        for size in (2, 5)
    ),
    Hang(one_rank_skips_the_window, 3, "missing_arrival", 1,
         ("2 of 3 ranks arrived", "rank 1 never arrived"), ("matching/missing_call",)),
    Hang(a_group_waits_for_a_member, 4, "missing_arrival", 3,
         ("2 of 3 ranks of group [0, 2, 3] arrived", "rank 3 never arrived"),
         ("matching/missing_call",)),
    Hang(a_group_lacks_a_notify, 6, "missing_notify", 2,
         ("rank 0 is blocked", "'pad'[0] = 1, awaited >= 2", "rank 2")),
    Hang(a_lane_is_not_told, 3, "missing_notify", 1,
         ("rank 0 lane 0 is blocked", "'sig'[0] = 2, awaited >= 3")),
    *(
        Hang(takes_back_one_too_many, size, "overdrawn", 0,
             ("rank 0 is blocked", "'sig'[0] =", f"took back {size}", f"held {size - 1}"))
        for size in (2, 4)
    ),
    Hang(lanes_wait_in_a_circle, 2, "cycle", 0, ("rank 0 lane 0, rank 1 lane 0 wait for each other",)),
)


def line_of(program: Scenario) -> int:
    """The line marked `# blocked`."""
    function = inspect.unwrap(program.host.__closure__[0].cell_contents)
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, text in enumerate(lines) if "# blocked" in text)


def outcome_of(hang: Hang):
    plan = Plan(scenario=hang.program.name, params=hang.program.params(), ranks=hang.ranks)
    return run(plan, scenario=hang.program)


def said(finding) -> str:
    return "\n".join((finding.message, *finding.evidence))


def test_there_are_thirty_and_every_class():
    assert len(HANGS) + len(LEAKS) + len(ALTERED) >= 30
    kinds = {hang.kind for hang in HANGS} | {"signal_leak"} | {kind for _, kind, *_ in ALTERED}
    assert kinds == {
        "lost_delivery", "dead_rank", "overshoot", "overwritten_signal", "wrong_cell", "cycle",
        "missing_notify", "missing_arrival", "signal_leak", "overdrawn",
    }


@pytest.mark.parametrize("hang", HANGS, ids=ids)
def test_a_hang_is_named(hang):
    outcome = outcome_of(hang)
    assert outcome.run.ended == "blocked"
    assert [f.name for f in outcome.findings] == [*hang.also, f"deadlock/{hang.kind}"]
    finding = outcome.findings[-1]
    assert finding.rank == hang.culprit
    for words in hang.says:
        assert words in said(finding), said(finding)
    assert f"test_hangs.py:{line_of(hang.program)} in" in said(finding)
    here = [line for line in finding.graph if line.endswith("<- here")]
    assert here
    assert len([line for line in finding.graph if not line.startswith(" ")]) == len(
        outcome.run.blocked
    )


@made()
def gives_one_too_many(rank):
    cell = rank.window("sig", 1, INT)
    for _ in range(4):
        for peer in others(rank):
            rank.notify(cell, peer, 0, 1)
        rank.wait(cell, 0, rank.size - 1)
        rank.notify(cell, rank.index, 0, 2 - rank.size)  # blocked
        rank.quiet()
        rank.barrier()


LEAKS = (Hang(gives_one_too_many, 3, "signal_leak", 1, ("leaves +4 on 'sig'[0] of rank 0",)),)


@pytest.mark.parametrize("hang", LEAKS, ids=ids)
def test_a_leak_is_named_although_the_run_ends(hang):
    outcome = outcome_of(hang)
    assert outcome.run.ended == "returned"
    (finding,) = outcome.findings
    assert (finding.name, finding.rank) == ("deadlock/signal_leak", hang.culprit)
    for words in hang.says:
        assert words in said(finding)
    assert f"test_hangs.py:{line_of(hang.program)} in" in said(finding)


def lose_deliveries(record):
    raw = [raw for raw in record.raw if raw[1] != "deliver"]
    return dataclasses.replace(record, raw=raw, _events=None, _issued=None)


def kill_the_first(record):
    return dataclasses.replace(record, dead=[0], _events=None, _issued=None)


# What no run of today's engine can show, made of a record of one: (program, kind, ranks, change, words)
ALTERED = (
    (threshold_counts_oneself, "lost_delivery", 2, lose_deliveries, "was issued at event"),
    (threshold_counts_oneself, "lost_delivery", 4, lose_deliveries, "never delivered"),
    (nobody_notifies, "dead_rank", 3, kill_the_first, "rank 0 died"),
)


@pytest.mark.parametrize(("program", "kind", "ranks", "change", "words"), ALTERED)
def test_classes_that_only_an_altered_record_shows(program, kind, ranks, change, words):
    record = change(outcome_of(Hang(program, ranks, kind, 0, ())).run)
    (finding,) = Deadlock().check(record)
    assert finding.kind == kind
    assert words in finding.message
    assert f"test_hangs.py:{line_of(program)} in" in said(finding)
