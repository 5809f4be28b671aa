"""What a record says: sites, places, operations behind deliveries, and the two identities."""

from __future__ import annotations

import pytest
import torch

from harness.fabric.execute import Job, execute
from harness.plan import Hold
from harness.rank import AtomicType, NotifyOp
from harness.record import Event, Site, place, site_of


def go(program, ranks=2, *schedule):
    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return execute(Job(ranks, host, schedule=schedule))


def sends(rank, value, cells, window):
    rank.put(window, 1 - rank.index, torch.tensor([value]))
    rank.put(window, 1 - rank.index, torch.tensor([value]), 1)
    rank.fence()
    rank.notify(cells, 1 - rank.index, 0, 1)


def program(rank):
    window = rank.window("w", 2, torch.float32)
    cells = rank.window("c", 1, torch.int32)
    sends(rank, 1.0 + rank.index, cells, window)
    rank.wait(cells, 0, 1)
    rank.barrier()
    return rank.load(window, 0, 2).tolist()


def test_sites_are_function_operation_and_ordinal():
    run = go(program)
    assert {str(run.site(event)) for event in run.events} == {
        "program:window#0",
        "program:window#1",
        "sends:put#0",
        "sends:put#1",
        "sends:fence#0",
        "sends:notify#0",
        "program:wait#0",
        "program:barrier#0",
        "program:load#0",
    }


def test_a_delivery_belongs_to_the_call_that_issued_it():
    run = go(program, 2, Hold(1))
    for event in run.events:
        if event.kind == "deliver":
            issue = run.issue_of(event)
            assert issue.kind in ("put", "notify")
            assert run.lane_of(event) == issue.owner
            assert run.site(event) == run.site(issue)
            assert event.owner == run.ranks + issue.number
        else:
            assert run.issue_of(event) is event


def test_sites_have_an_order_and_survive_edits_elsewhere():
    assert sorted([Site("g", "put"), Site("f", "put", 1), Site("f", "put")]) == [
        Site("f", "put"),
        Site("f", "put", 1),
        Site("g", "put"),
    ]
    assert site_of(None, -1, "crash") == Site("harness", "crash")


def test_a_place_is_the_users_line():
    run = go(program)
    event = next(event for event in run.events if event.kind == "wait")
    line = program.__code__.co_firstlineno + 4
    assert place(event.code, event.lasti) == f"tests/harness/test_record.py:{line} in program"
    assert place(None, -1) == "harness"


def test_byte_ranges_are_payload_offsets_and_values_what_was_written():
    run = go(program, 2)
    second = [event for event in run.events if event.kind == "put"][1]
    assert isinstance(second, Event)
    assert (second.lo, second.hi) == (4, 8)
    assert second.value == torch.tensor([1.0 + second.owner]).numpy().tobytes()
    assert [event.value for event in run.events if event.kind == "wait"] == [1, 1]


def test_long_values_are_digests():
    def long(rank):
        window = rank.window("w", 128, torch.float32)
        rank.store(window, torch.ones(64), 0)
        rank.store(window, torch.ones(65), 0)

    sizes = [len(event.value) for event in go(long, 1).events if event.kind == "store"]
    assert sizes == [256, 16]


def test_identity_sees_the_order_and_value_identity_the_values():
    def other(rank):
        window = rank.window("w", 2, torch.float32)
        cells = rank.window("c", 1, torch.int32)
        sends(rank, 7.0, cells, window)
        rank.wait(cells, 0, 1)
        rank.barrier()
        return rank.load(window, 0, 2).tolist()

    plain, changed, held = go(program), go(other), go(program, 2, Hold(0))
    assert len(plain.identity()) == len(plain.value_identity()) == 64
    assert plain.identity() == changed.identity() != held.identity()
    assert plain.value_identity() != changed.value_identity()


def test_final_memory_by_rank():
    def fills(rank):
        window = rank.window("w", 2, torch.int32)
        private = rank.buffer(1, torch.int32)
        rank.store(window, rank.index + 1, 1)
        rank.store(private, 9)

    run = go(fills)
    window, *buffers = run.names
    assert [window.final(rank) for rank in range(2)] == [
        torch.tensor([0, 1], dtype=torch.int32).numpy().tobytes(),
        torch.tensor([0, 2], dtype=torch.int32).numpy().tobytes(),
    ]
    assert (window.kind, window.dtype, window.itemsize, window.nbytes) == ("window", "int32", 4, 8)
    nine = torch.tensor([9], dtype=torch.int32).numpy().tobytes()
    assert sorted([buffer.final(rank) for rank in range(2)].index(nine) for buffer in buffers) == [
        0,
        1,
    ]
    assert all(None in [buffer.final(rank) for rank in range(2)] for buffer in buffers)


@pytest.mark.parametrize(
    "call",
    [
        lambda rank, w, c, b: rank.put(w, 0, torch.ones(1), atomic=AtomicType.Add),
        lambda rank, w, c, b: rank.put_nbi(w, 0, b),
        lambda rank, w, c, b: rank.get(b, 0, w),
        lambda rank, w, c, b: rank.get_nbi(b, 0, w),
        lambda rank, w, c, b: rank.remote_load(w, 0, 0, 1),
        lambda rank, w, c, b: rank.remote_store(w, 0, torch.ones(1)),
        lambda rank, w, c, b: rank.put_signal(w, 0, torch.ones(1), 0, c, 0, 1, op=NotifyOp.Set),
        lambda rank, w, c, b: rank.sync(),
        lambda rank, w, c, b: rank.quiet(),
        lambda rank, w, c, b: rank.barrier(),
        lambda rank, w, c, b: w.free(),
    ],
)
def test_every_event_of_an_operation_leads_to_the_users_call(call):
    def whole(rank):
        window = rank.window("w", 1, torch.float32, init="zero")
        cells = rank.window("c", 1, torch.int32)
        call(rank, window, cells, rank.buffer(1, torch.float32))

    run = go(whole)
    assert run.failures == []
    own = [event for event in run.events if "window" not in event.kind]
    assert own
    for event in own:
        assert event.code is call.__code__
        assert run.site(event).operation in call.__code__.co_names, event
