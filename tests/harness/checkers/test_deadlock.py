"""Each deadlock class: a program that must be diagnosed as it, and a twin that stays silent."""

from __future__ import annotations

import dataclasses

import torch

from harness import NotifyOp, Scenario, WaitCmp, scenario
from harness.checkers.deadlock import Deadlock

INT = torch.int32


def nothing(size: int, **_: object) -> list[None]:
    return [None] * size


def made(program) -> Scenario:
    return scenario(reference=nothing, ranks=(1, 8))(program)


def only(outcome, name: str):
    assert [f.name for f in outcome.findings] == [name]
    return outcome.findings[0]


def notify_all(rank, cell, skip: int = -1, at: int = 0) -> None:
    for peer in range(rank.size):
        if peer not in (rank.index, skip):
            rank.notify(cell, peer, at, 1)


@made
def barrier(rank) -> None:
    cell = rank.window("sig", 2, INT)
    for epoch in (1, 2):
        notify_all(rank, cell)
        rank.wait(cell, 0, epoch * (rank.size - 1))


@made
def missing_notify(rank) -> None:
    cell = rank.window("sig", 2, INT)
    for epoch in (1, 2):
        notify_all(rank, cell, skip=1 if rank.index == 2 and epoch == 1 else -1)
        rank.wait(cell, 0, epoch * (rank.size - 1))


def test_missing_notify_names_the_rank_that_contributed_less(judge):
    finding = only(judge(missing_notify, 4), "deadlock/missing_notify")
    assert finding.rank == 2
    assert "rank 1 is blocked in wait" in finding.message
    assert "'sig'[0] = 5, awaited >= 6" in finding.message
    assert "rank 2 notified it once, others twice" in finding.message
    assert "less than others: rank 2 (returned)" in "\n".join(finding.evidence)
    assert [str(site) for site in finding.sites] == ["missing_notify:wait#0"]
    assert judge(barrier, 4).findings == ()


def test_missing_notify_keeps_its_identity_in_smaller_worlds(judge):
    found = {judge(missing_notify, size).findings[0].identity for size in (3, 4, 8)}
    assert len(found) == 1


@made
def slots(rank) -> None:
    cell = rank.window("slot", rank.size, INT)
    for peer in range(rank.size):
        if peer != rank.index and not (rank.index == 3 and peer == 0):
            rank.notify(cell, peer, rank.index, 1)
    for source in range(rank.size):
        if source != rank.index:
            rank.wait(cell, source, 1)


def test_missing_notify_of_a_slot_names_only_its_source(judge):
    finding = only(judge(slots, 4), "deadlock/missing_notify")
    assert finding.rank == 3
    assert "rank 3 could have" in finding.message
    assert "'slot'[3] = 0" in finding.message
    assert judge(slots, 3).findings == ()


@made
def never_notified(rank) -> None:
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, 1)


def test_nobody_notifies_is_a_missing_notify_and_no_cycle(judge):
    for size in (1, 2, 5):
        finding = only(judge(never_notified, size), "deadlock/missing_notify")
        assert "nobody ever notified it" in finding.message
        assert len(finding.evidence) == size


@made
def wait_first(rank) -> None:
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, rank.size - 1)
    notify_all(rank, cell)


@made
def ring_wait_first(rank) -> None:
    cell = rank.window("sig", 1, INT)
    rank.wait(cell, 0, 1)
    rank.notify(cell, (rank.index + 1) % rank.size, 0, 1)


@made
def ring_wait_first_but_one(rank) -> None:
    cell = rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.notify(cell, 1 % rank.size, 0, 1)
        rank.wait(cell, 0, 1)
    else:
        rank.wait(cell, 0, 1)
        rank.notify(cell, (rank.index + 1) % rank.size, 0, 1)


def test_cycle_when_everybody_waits_first(judge):
    finding = only(judge(wait_first, 3), "deadlock/cycle")
    assert "ranks 0, 1 and 2 wait for each other" in finding.message
    assert len(finding.evidence) == 3
    only(judge(ring_wait_first, 4), "deadlock/cycle")
    assert judge(ring_wait_first_but_one, 4).findings == ()


@made
def root_is_upstream(rank) -> None:
    cell = rank.window("sig", 1, INT)
    if rank.index == 1:
        rank.wait(cell, 0, 1)
    if rank.index == 2:
        rank.wait(cell, 0, 1)
    if 0 < rank.index < rank.size - 1:
        rank.notify(cell, rank.index + 1, 0, 1)


def test_a_lane_that_waits_for_a_blocked_lane_is_not_the_root(judge):
    finding = only(judge(root_is_upstream, 3), "deadlock/missing_notify")
    assert "rank 1 is blocked" in finding.message
    assert finding.rank == 0
    assert any(line.startswith("rank 2 is blocked") for line in finding.evidence)


@made
def two_too_many_taken_back(rank) -> None:
    cell = rank.window("sig", rank.size, INT)
    for _ in range(2):
        for peer in range(rank.size):
            rank.notify(cell, peer, rank.index, 1)
        for peer in range(rank.size):
            rank.wait(cell, peer, 1)
        for peer in range(rank.size):
            rank.notify(cell, rank.index, peer, -2)
        rank.quiet()


def test_what_was_taken_back_is_no_contribution_and_is_told(judge):
    finding = only(judge(two_too_many_taken_back, 4), "deadlock/overdrawn")
    assert "'sig'[0] = 0, awaited >= 1; rank 0's notify #" in finding.message
    assert "took back 2 at event" in finding.message
    assert "when the cell held 1" in finding.message
    assert finding.rank == 0
    assert "contributed: rank 0 twice; taken back: rank 0 2" in "\n".join(finding.evidence)


@made
def overshoot(rank) -> None:
    cell = rank.window("sig", 1, INT)
    notify_all(rank, cell)
    rank.wait(cell, 0, 1, cmp=WaitCmp.Eq)


def test_overshoot_names_the_notify_that_passed_the_value(judge):
    finding = only(judge(overshoot, 3), "deadlock/overshoot")
    assert "from 1 to 2" in finding.message
    assert finding.events
    assert judge(overshoot, 2).findings == ()


@made
def data_over_a_flag(rank) -> None:
    """Rank 0's data is stored over the flag that it had Set, before rank 1 has looked."""
    cell = rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.notify(cell, 1, 0, 1, op=NotifyOp.Set)
        rank.fence()
        rank.put(cell, 1, torch.tensor([7], dtype=INT))
        rank.quiet()
    rank.sync()
    if rank.index == 1:
        rank.wait(cell, 0, 1, cmp=WaitCmp.Eq)


def test_data_over_a_flag_is_no_overshoot(judge):
    """No epoch that grows would help here, so it must not be called so."""
    finding = only(judge(data_over_a_flag, 2), "deadlock/overwritten_signal")
    assert finding.rank == 0
    assert "(put 7, event" in finding.message
    assert "overwrote the 1 that rank 0's notify #0" in finding.message
    assert finding.cause == "data was written over a cell that held a signal"


@made
def data_beside_an_overshoot(rank) -> None:
    """The notifies alone go past 1; what data does to the cell before them is not to blame."""
    cell = rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.put(cell, 1, torch.tensor([0], dtype=INT))
        rank.quiet()
        rank.notify(cell, 1, 0, 1)
        rank.notify(cell, 1, 0, 1)
        rank.quiet()
    rank.sync()
    if rank.index == 1:
        rank.wait(cell, 0, 1, cmp=WaitCmp.Eq)


def test_notifies_that_pass_the_value_are_an_overshoot_whatever_data_was_there(judge):
    finding = only(judge(data_beside_an_overshoot, 2), "deadlock/overshoot")
    assert "from 1 to 2" in finding.message


@made
def set_barrier(rank) -> None:
    cell = rank.window("sig", 1, INT)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(cell, peer, 0, 1, op=NotifyOp.Set)
    rank.wait(cell, 0, rank.size - 1, cmp=WaitCmp.Eq)


def test_overwritten_signal_names_both_writers(judge):
    finding = only(judge(set_barrier, 3), "deadlock/overwritten_signal")
    assert "overwrote the 1 that rank" in finding.message
    assert "Set 1" in finding.message
    assert finding.cause.startswith("several arrivals share a cell")
    assert judge(set_barrier, 2).findings == ()


@made
def reset_loses_arrival(rank) -> None:
    cell = rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.sync()
        rank.store(cell, 0, 0)
        rank.wait(cell, 0, 1)
    else:
        if rank.index == 1:
            rank.notify(cell, 0, 0, 1)
            rank.quiet()
        rank.sync()


def test_a_reset_that_erases_an_arrival_is_an_overwritten_signal(judge):
    finding = only(judge(reset_loses_arrival, 2), "deadlock/overwritten_signal")
    assert "store 0" in finding.message
    assert finding.rank == 0
    assert finding.cause == "a rank reset its own cell, and with it a signal that had come early"


@made
def wrong_cell(rank) -> None:
    cell = rank.window("slot", rank.size, INT)
    for peer in range(rank.size):
        if peer != rank.index:
            at = 1 if (rank.index, peer) == (2, 0) else rank.index
            rank.notify(cell, peer, at, 1)
    for source in range(rank.size):
        if source != rank.index:
            rank.wait(cell, source, 1)


@made
def wrong_counter(rank) -> None:
    cell = rank.window("sig", 2, INT)
    notify_all(rank, cell, at=1 if rank.index == 1 else 0)
    rank.wait(cell, 0, rank.size - 1)


def test_wrong_cell_on_the_same_rank(judge):
    finding = only(judge(wrong_cell, 4), "deadlock/wrong_cell")
    assert finding.rank == 2
    assert "went to 'slot'[1] on rank 0" in finding.message
    finding = only(judge(wrong_counter, 2), "deadlock/wrong_cell")
    assert finding.rank == 1
    assert "went to 'sig'[1] on rank 0" in finding.message
    assert judge(wrong_cell, 2).findings == ()


@made
def two_cells(rank) -> None:
    cell = rank.window("sig", 2, INT)
    if rank.index == 0:
        rank.notify(cell, 1, 1, 1)
    else:
        rank.wait(cell, 0, 1)
        rank.wait(cell, 1, 1)


def test_a_cell_that_will_be_awaited_later_is_no_wrong_cell(judge):
    finding = only(judge(two_cells, 2), "deadlock/missing_notify")
    assert finding.rank == 0


@made
def answers_in_turn(rank) -> None:
    """Cells 0 to 2: rank r has sent; cells 3 to 5: rank r has taken. Rank 2 forgets to send to rank 0."""
    cell = rank.window("sig", 6, INT)
    if rank.index == 2:
        rank.notify(cell, 1, 2, 1)
        for peer in range(2):
            rank.wait(cell, peer, 1)
            rank.notify(cell, peer, 5, 1)
    elif rank.index == 1:
        rank.wait(cell, 2, 1)
        rank.wait(cell, 0, 1)
        rank.notify(cell, 2, 1, 1)
        rank.wait(cell, 5, 1)
    else:
        rank.notify(cell, 2, 0, 1)
        rank.wait(cell, 2, 1)
        rank.notify(cell, 1, 0, 1)
        rank.wait(cell, 5, 1)


def test_a_cell_that_the_debtor_is_yet_to_notify_elsewhere_is_no_wrong_cell(judge):
    finding = only(judge(answers_in_turn, 3), "deadlock/missing_notify")
    assert finding.rank == 2
    assert "rank 0 is blocked" in finding.message


@made
def wrong_peer(rank) -> None:
    cell = rank.window("sig", 1, INT)
    for peer in range(rank.size):
        if peer != rank.index:
            rank.notify(cell, 2 if (rank.index, peer) == (1, 0) else peer, 0, 1)
    rank.wait(cell, 0, rank.size - 1)


def test_wrong_cell_on_another_rank(judge):
    finding = only(judge(wrong_peer, 4), "deadlock/wrong_cell")
    assert finding.rank == 1
    assert "on rank 2" in finding.message


@made
def skipped_barrier(rank) -> None:
    rank.barrier()
    if rank.index != 1:
        rank.barrier()


def test_missing_arrival_names_the_rank_that_never_came(judge):
    outcome = judge(skipped_barrier, 4)
    names = [finding.name for finding in outcome.findings]
    assert names == ["matching/missing_call", "deadlock/missing_arrival"]
    finding = outcome.findings[1]
    assert finding.rank == 1
    assert "3 of 4 ranks arrived; rank 1 never arrived" in finding.message
    assert finding.evidence[0].endswith("not arrived: rank 1 (returned)")


@made
def window_and_notify(rank) -> None:
    cell = rank.window("sig", 1, INT)
    if rank.index == 0:
        rank.wait(cell, 0, 1)
    rank.window("more", 4, INT)


def test_a_barrier_that_waits_for_a_blocked_lane_is_a_consequence(judge):
    finding = only(judge(window_and_notify, 3), "deadlock/missing_notify")
    assert "rank 0 is blocked in wait" in finding.message
    assert any("is blocked in window" in line and "rank 0 (blocked in wait" in line
               for line in finding.evidence)


@made
def view_cells(rank) -> None:
    whole = rank.window("sig", 8, INT)
    cell = whole.view(4, INT, 16)
    if rank.index == 0:
        rank.notify(cell, 1, 2, 1)
    elif rank.index == 1:
        rank.wait(cell, 2, 2)


def test_cells_of_a_view_are_found_at_their_own_place(judge):
    finding = only(judge(view_cells, 2), "deadlock/missing_notify")
    assert "contributed: rank 0 once" in finding.evidence[0]
    assert "rank 0 notified it once, which is not enough" in finding.message


def test_lost_delivery_when_the_record_lacks_one(judge):
    record = judge(view_cells, 2).run
    cut = dataclasses.replace(
        record, raw=[raw for raw in record.raw if raw[1] != "deliver"], _events=None, _issued=None
    )
    (finding,) = Deadlock().check(cut)
    assert finding.kind == "lost_delivery"
    assert "notify #0" in finding.message
    assert "never delivered" in finding.message


def test_dead_rank_when_one_died(judge):
    record = judge(never_notified, 3).run
    (finding,) = Deadlock().check(dataclasses.replace(record, dead=[2]))
    assert finding.kind == "dead_rank"
    assert finding.rank == 2


@made
def raises(rank) -> None:
    cell = rank.window("sig", 1, INT)
    if rank.index == 1:
        raise ValueError("no")
    rank.wait(cell, 0, 1)


def test_after_an_exception_blocked_lanes_are_no_deadlock(judge):
    only(judge(raises, 3), "exceptions/value_error")


@made
def to_the_next_cell(rank) -> None:
    cell = rank.window("sig", 3, INT)
    rank.notify(cell, (rank.index + 1) % rank.size, 1 if rank.index == 0 else 0, 1)
    rank.wait(cell, 0, 1)
    rank.wait(cell, 2, 0)


def test_a_notify_to_a_cell_that_no_wait_has_looked_at_is_evidence(judge):
    (finding,) = judge(to_the_next_cell, 2).findings
    text = "\n".join(finding.evidence)
    assert "rank 0's notify #" in text
    assert "went to 'sig'[1] of rank 1, which no wait has looked at so far" in text


@made
def set_once(rank) -> None:
    cell = rank.window("sig", 1, INT)
    peer = (rank.index + 1) % rank.size
    rank.notify(cell, peer, 0, 1)
    rank.wait(cell, 0, 1)
    rank.notify(cell, peer, 0, 1, op=NotifyOp.Set if rank.index == 0 else NotifyOp.AtomicAdd)
    rank.wait(cell, 0, 2)


def test_a_set_that_raised_nothing_is_evidence(judge):
    finding = only(judge(set_once, 2), "deadlock/missing_notify")
    assert finding.rank == 0
    (line,) = [line for line in finding.evidence if "set it to 1" in line]
    assert line.startswith("rank 0's notify #")
    assert line.endswith("when it held 1")


def test_evidence_does_not_repeat_the_finding(judge):
    (finding,) = judge(to_the_next_cell, 2).findings
    assert not any(line in finding.message for line in finding.evidence)
