"""Groups of ranks, also overlapping ones: windows, syncs and cells of their own."""

from __future__ import annotations

import pytest
import torch

from harness import Hold, Plan, run, scenario
from harness.errors import WrongGroup, WrongPeer

NOTHING = {"reference": lambda size: [None] * size}


def test_overlapping_groups_meet_each_by_itself(go):
    def program(rank):
        met = []
        for group in ([0, 2], [2, 1], [0, 1, 2]):
            if rank.index in group:
                rank.sync(group)
                met.append(tuple(group))
        return met

    record = go(program, 3)
    assert record.ended == "returned"
    assert record.results == [
        [[(0, 2), (0, 1, 2)]], [[(2, 1), (0, 1, 2)]], [[(0, 2), (2, 1), (0, 1, 2)]]
    ]
    values = [raw[6] for raw in record.raw if raw[1] == "sync_arrive"]
    assert sorted(values, key=str) == [(0, 2), (0, 2), (1, 2), (1, 2), None, None, None]


def test_the_order_of_a_group_does_not_matter_and_all_ranks_are_the_world(go):
    def program(rank):
        rank.sync([1, 0] if rank.index else (0, 1))
        rank.barrier([2, 1, 0]) if rank.index == 0 else rank.barrier()

    def padded(rank):
        if rank.index < 2:
            program(rank)
        else:
            rank.barrier()

    assert go(padded, 3).ended == "returned"


def test_a_group_that_is_not_complete_waits_for_its_members_only(go):
    def program(rank):
        if rank.index != 1:
            rank.sync([0, 2] if rank.index == 0 else [1, 2])

    record = go(program, 3)
    assert record.ended == "blocked"
    assert {b.rank: (b.group, b.value, b.expected) for b in record.blocked} == {
        0: ((0, 2), 1, 2), 2: ((1, 2), 1, 2)
    }


def test_windows_of_two_groups_with_one_name_are_two(go):
    def program(rank):
        seen = []
        for group in ([0, 2], [1, 2]):
            if rank.index in group:
                window = rank.window("pad", 1, torch.int32, group=group)
                for peer in group:
                    rank.notify(window, peer, 0, 1 + group[0])
                rank.wait(window, 0, 2 * (1 + group[0]))
                seen.append(rank.load(window, 0, 1).item())
        return seen

    record = go(program, 3)
    assert record.results == [[[2]], [[4]], [[2, 4]]]
    names = [(known.name, sorted(known.regions)) for known in record.names]
    assert names == [("pad", [0, 2]), ("pad", [1, 2])]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda r: r.sync([1, 2]), WrongGroup, "with group [1, 2], which this rank is not a member"),
        (lambda r: r.sync([0, 5]), WrongGroup, "with group [0, 5]: 5 is outside 0..2"),
        (lambda r: r.sync([0, 0]), WrongGroup, "with group [0, 0]: 0 occurs twice"),
        (lambda r: r.sync([]), WrongGroup, "with group []: it is empty"),
        (lambda r: r.sync(7), WrongGroup, "with group 7; a group is a sequence of ranks"),
        (lambda r: r.barrier("ab"), WrongGroup, "barrier with group 'ab'; a group is a sequence"),
        (lambda r: r.window("w", 1, torch.int32, group=[1]), WrongGroup, "window 'w' with group [1]"),
    ],
)
def test_wrong_groups(go, call, error, words):
    def program(rank):
        if rank.index == 0:
            call(rank)

    (failure,) = go(program, 3).failures
    assert type(failure.error) is error
    assert str(failure.error).startswith("rank 0: ")
    assert words in str(failure.error)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("put", lambda r, w: r.put(w, 1, torch.zeros(1, dtype=torch.int32))),
        ("put_nbi", lambda r, w: r.put_nbi(w, 1, r.buffer(1, torch.int32))),
        ("remote_store", lambda r, w: r.remote_store(w, 1, torch.zeros(1, dtype=torch.int32))),
        ("remote_load", lambda r, w: r.remote_load(w, 1, 0, 1)),
        ("get", lambda r, w: r.get(r.buffer(1, torch.int32), 1, w)),
        ("get_nbi", lambda r, w: r.get_nbi(r.buffer(1, torch.int32), 1, w)),
        ("notify", lambda r, w: r.notify(w, 1, 0, 1)),
        (
            "put_signal",
            lambda r, w: r.put_signal(w, 1, torch.zeros(1, dtype=torch.int32), 0, w, 0, 1),
        ),
    ],
)
def test_memory_of_a_group_is_out_of_reach_of_others(go, name, call):
    def program(rank):
        if rank.index != 1:
            window = rank.window("w", 1, torch.int32, group=[0, 2])
            if rank.index == 0:
                call(rank, window)

    (failure,) = go(program, 3).failures
    assert type(failure.error) is WrongPeer
    assert f"rank 0: {name} to peer 1 in window 'w' [1] int32; its group has the ranks 0, 2" in str(
        failure.error
    )


@scenario(**NOTHING)
def skips_one(rank):
    group = [0, 1] if rank.index < 2 else [2, 3]
    if rank.index != 3:
        rank.sync(group)


@scenario(**NOTHING)
def different_windows(rank):
    if rank.index != 1:
        rank.window("pad", 1 + rank.index, torch.int32, group=[0, 2])


def outcome(program, ranks, schedule=(), **more):
    plan = Plan(
        scenario=program.name, params=program.params(), ranks=ranks, schedule=tuple(schedule)
    )
    return run(plan, scenario=program, **more)


def test_matching_goes_by_group():
    found = outcome(skips_one, 4).findings
    assert [(f.name, f.rank) for f in found] == [
        ("matching/missing_call", 3), ("deadlock/missing_arrival", 3)
    ]
    assert "sync(group=[2, 3])" in found[0].message
    assert "1 of 2 ranks of group [2, 3] arrived" in found[1].message
    found = outcome(different_windows, 3).findings
    assert found[0].name == "matching/different_call"
    assert found[0].rank == 2


def slot_of(group, rank, size):
    return group.index(rank)


@scenario(reference=lambda size: [None, None, 5.0])
def shared_slot(rank):
    """Two groups use the same pad, and a slot made of the group-local rank alone (field bug 10)."""
    data = rank.window("data", 1, torch.float32)
    pad = rank.window("pad", 2, torch.int32)
    if rank.index == 0:
        rank.put(data, 2, torch.tensor([5.0]))
        rank.fence()
    if rank.index < 2:
        rank.notify(pad, 2, slot_of([rank.index, 2], rank.index, 2), 1)
        return None
    rank.wait(pad, slot_of([0, 2], 0, 2), 1)
    return rank.load(data, 0, 1).item()


@scenario(reference=lambda size: [None, None, 5.0])
def own_slots(rank):
    """The twin: each group has a pad of its own."""
    data = rank.window("data", 1, torch.float32)
    value = None
    for group in ([0, 2], [1, 2]):
        if rank.index in group:
            pad = rank.window("pad", 2, torch.int32, group=group)
            if rank.index == 0:
                rank.put(data, 2, torch.tensor([5.0]))
                rank.fence()
            if rank.index < 2:
                rank.notify(pad, 2, slot_of(group, rank.index, 2), 1)
            else:
                rank.wait(pad, 0, 1)
                value = rank.load(data, 0, 1).item() if group[0] == 0 else value
    return value


def test_two_groups_that_share_a_slot_are_seen_in_one_run_and_their_twin_is_silent():
    found = outcome(shared_slot, 3, races=True)
    assert [f.name for f in found.findings] == ["races/unordered_read"]
    assert "only a count orders them" in " ".join(found.findings[0].evidence)
    wrong = outcome(shared_slot, 3, [Hold(1)])
    assert [f.name for f in wrong.findings] == ["integrity/wrong_value"]
    for schedule in ((), (Hold(0),), (Hold(1), Hold(2))):
        assert outcome(own_slots, 3, schedule, races=True).findings == ()
