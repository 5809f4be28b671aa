"""What blocked lanes would do next, and that finding it out leaves no trace in the run."""

import torch

from harness import Plan, run, scenario

NOTHING = {"reference": lambda size: [None] * size}


@scenario(**NOTHING)
def each_waits_first(rank):
    cell = rank.window("flag", 1, torch.int32)
    peer = (rank.index + 1) % rank.size
    rank.wait(cell, 0, 1)
    print("never said")  # noqa: T201
    rank.store(cell, 7)
    rank.quiet()
    rank.notify(cell, peer, 0, 1)
    rank.barrier()


@scenario(**NOTHING)
def nobody_notifies(rank):
    cell = rank.window("flag", 2, torch.int32)
    rank.wait(cell, 0, 1)
    rank.notify(cell, (rank.index + 1) % rank.size, 1, 1)


@scenario(**NOTHING)
def waits_for_itself(rank):
    cell = rank.window("flag", 1, torch.int32)
    if rank.index == 1:
        rank.wait(cell, 0, 1)
        rank.notify(cell, rank.index, 0, 1)


@scenario(**NOTHING)
def raises_afterwards(rank):
    cell = rank.window("flag", 1, torch.int32)
    rank.wait(cell, 0, 1)
    raise ValueError("not in this run")


def outcome(program, ranks=3):
    return run(Plan(scenario=program.name, params=program.params(), ranks=ranks), scenario=program)


def test_a_circular_wait_is_a_cycle():
    found = outcome(each_waits_first)
    assert [f.name for f in found.findings] == ["deadlock/cycle"]
    for blocked in found.run.blocked:
        peer = (blocked.lane + 1) % 3
        assert blocked.afterwards.notifies == {(blocked.window, peer, 0)}
        assert blocked.afterwards.arrives
        assert {"store", "quiet", "notify"} <= blocked.afterwards.operations


def test_a_notify_to_another_cell_is_no_cycle():
    found = outcome(nobody_notifies)
    assert [f.name for f in found.findings] == ["deadlock/missing_notify"]


def test_a_lane_that_would_free_itself():
    found = outcome(waits_for_itself)
    assert [f.name for f in found.findings] == ["deadlock/cycle"]
    assert "only it could notify that cell" in found.findings[0].message


def test_the_look_ahead_leaves_no_trace(capsys):
    record = outcome(each_waits_first).run
    assert record.ended == "blocked"
    assert [event.kind for event in record.events if event.kind in ("store", "wait", "notify")] == []
    assert record.operations == 0
    assert record.results == [None] * 3
    assert [calls for calls in record.calls if len(calls) != 1] == []
    window = next(name for name in record.names if name.name == "flag")
    assert [window.final(rank) for rank in range(3)] == [bytes(4)] * 3
    assert capsys.readouterr().out == ""


def test_what_would_be_raised_is_no_failure():
    found = outcome(raises_afterwards)
    assert found.run.failures == []
    assert [f.name for f in found.findings] == ["deadlock/missing_notify"]
