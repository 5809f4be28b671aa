"""Random straight-line programs under random schedules: what holds for every run of the fabric."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.fabric.execute import Job, execute
from harness.plan import Hold, Preempt
from harness.rank import AtomicType, NotifyOp

RANKS = 3
ONE = torch.ones(1)
PEER = st.integers(0, RANKS - 1)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["put", "put_nbi", "remote_store", "atomic", "signal"]), PEER),
    st.tuples(st.sampled_from(["get", "get_nbi", "remote_load", "notify", "set"]), PEER),
    st.tuples(st.sampled_from(["fence", "quiet", "load", "store"]), st.just(0)),
)
PROGRAMS = st.lists(st.lists(STEPS, max_size=6), min_size=RANKS, max_size=RANKS)
SCHEDULES = st.lists(
    st.builds(Hold, st.integers(0, 20), st.integers(0, 12))
    | st.builds(Preempt, st.integers(0, 60), st.integers(0, 6)),
    max_size=5,
)


def step(rank, name, peer, window, cells, buffer):
    calls = {
        "put": lambda: rank.put(window, peer, ONE),
        "put_nbi": lambda: rank.put_nbi(window, peer, buffer),
        "remote_store": lambda: rank.remote_store(window, peer, ONE),
        "atomic": lambda: rank.put(window, peer, ONE, 1, atomic=AtomicType.Add),
        "signal": lambda: rank.put_signal(window, peer, ONE, 0, cells, 0, 1, op=NotifyOp.AtomicAdd),
        "get": lambda: rank.get(buffer, peer, window),
        "get_nbi": lambda: rank.get_nbi(buffer, peer, window),
        "remote_load": lambda: rank.remote_load(window, peer, 0, 1),
        "notify": lambda: rank.notify(cells, peer, 0, 1),
        "set": lambda: rank.notify(cells, peer, 1, 5, op=NotifyOp.Set),
        "fence": rank.fence,
        "quiet": rank.quiet,
        "load": lambda: rank.load(window, 0, 1),
        "store": lambda: rank.store(buffer, 2.0),
    }
    calls[name]()


def perform(steps, schedule, **job):
    def program(rank):
        window = rank.window("w", 2, torch.float32, init="zero")
        cells = rank.window("c", 2, torch.int32)
        buffer = rank.buffer(1, torch.float32)
        for name, peer in steps[rank.index]:
            step(rank, name, peer, window, cells, buffer)
        rank.barrier()
        return rank.load(window, 1, 1).item(), rank.load(cells, 0, 1).item()

    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return execute(Job(RANKS, host, schedule=schedule, **job))


def check(run):
    """Deliveries against issues, fences, quiets and barriers."""
    flying, fenced, held_up_by = {}, {}, {}
    arrived = 0
    for event in run.events:
        if event.kind in ("fence", "quiet", "barrier"):
            mine = [e for e in flying.values() if e.owner == event.owner]
            assert event.kind == "fence" or not mine
            if event.kind == "fence":
                fenced[event.owner] = {
                    e.number for e in mine if e.kind not in ("get_issue", "get_nbi")
                }
            assert event.kind != "barrier" or arrived == RANKS
        elif event.kind == "sync_arrive":
            arrived += 1
        elif event.owner >= RANKS:
            issue = run.issue_of(event)
            assert event.number in flying
            if event.kind == "read":
                continue
            del flying[event.number]
            if event.kind == "deliver":
                older = held_up_by[event.number] & flying.keys()
                assert not [one for one in older if flying[one].peer == issue.peer]
        elif event.number >= 0:
            flying[event.number] = event
            held_up_by[event.number] = fenced.get(event.owner, set())
    assert flying == {}


@given(PROGRAMS, SCHEDULES)
def test_every_run_obeys_the_table(steps, schedule):
    run = perform(steps, schedule)
    assert (run.ended, run.failures, run.blocked) == ("returned", [], [])
    check(run)
    for index, ((total, cell),) in enumerate(run.results):
        flat = [step for steps_of_rank in steps for step in steps_of_rank]
        assert total == flat.count(("atomic", index)), "adds lose nothing"
        assert cell == flat.count(("notify", index)) + flat.count(("signal", index))
    again = perform(steps, schedule)
    assert (again.identity(), again.value_identity()) == (run.identity(), run.value_identity())
