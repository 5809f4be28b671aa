"""The interface itself: numbers of the ABI, that every operation passes the faults' door once, and
that every public operation says what it does."""

from __future__ import annotations

import inspect

import pytest
import torch

from harness.fabric.execute import Job, execute
from harness.plan import Fault
from harness.rank import AtomicType, NotifyOp, Rank, WaitCmp

OPERATIONS = [
    name for name, found in vars(Rank).items() if inspect.isfunction(found) and name[0] != "_"
]


class Watch(Fault, frozen=True):
    """Changes nothing; notes what came to the door."""

    def matches(self, op):
        SEEN.append((op.kind, op.rank, op.size, sorted(op.args)))
        return True

    def rewrite(self, op):
        return op


SEEN = []


def everything(rank):
    window = rank.window("w", 1, torch.float32, init="zero")
    cells = rank.window("c", 1, torch.int32)
    buffer = rank.buffer(1, torch.float32)
    one = torch.ones(1)
    rank.store(buffer, 1.0)
    rank.load(buffer, 0, 1)
    rank.put(window, 0, one, atomic=AtomicType.Add)
    rank.put_nbi(window, 0, buffer)
    rank.get(buffer, 0, window)
    rank.get_nbi(buffer, 0, window)
    rank.remote_load(window, 0, 0, 1)
    rank.remote_store(window, 0, one)
    rank.put_signal(window, 0, one, 0, cells, 0, 1, op=NotifyOp.AtomicAdd)
    rank.notify(cells, 0, 0, 1)
    rank.wait(cells, 0, 2)
    rank.fence()
    rank.quiet()
    rank.sync()
    rank.barrier()
    window.free()


def go(*faults):
    def host(world):
        world.dispatch(everything, device=0)

    SEEN.clear()
    return execute(Job(1, host, faults=faults))


def test_numbers_are_those_of_the_abi():
    assert {
        member.name: member.value for kind in (NotifyOp, WaitCmp, AtomicType) for member in kind
    } == {
        "AtomicAdd": 0,
        "Set": 1,
        "Eq": 0,
        "Ge": 1,
        "NoAtomic": 0,
        "Add": 1,
    }


def test_every_operation_comes_to_the_door_once_with_its_named_arguments():
    run = go(Watch())
    assert (run.ended, run.failures, run.fired) == ("returned", [], [0])
    seen = [kind for kind, rank, size, _ in SEEN if rank == 0]
    assert sorted(set(seen) - {"free", "dispatch", "alloc", "prepare"}) == sorted(OPERATIONS)
    assert {kind: seen.count(kind) for kind in OPERATIONS if kind != "window"} == dict.fromkeys(
        (name for name in OPERATIONS if name != "window"), 1
    )
    for kind, _, _, names in SEEN:
        if kind in OPERATIONS:
            expected = list(inspect.signature(getattr(Rank, kind)).parameters)[1:]
            assert names == sorted(expected), kind


def test_the_door_changes_nothing_in_the_record():
    plain, watched = go(), go(Watch())
    assert watched.identity() == plain.identity()
    assert watched.value_identity() == plain.value_identity()
    assert [(event.code, event.lasti) for event in watched.events] == [
        (event.code, event.lasti) for event in plain.events
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_docstring_and_a_body_of_its_own(name):
    assert inspect.getdoc(getattr(Rank, name))
    assert getattr(Rank, f"_{name}").__isabstractmethod__


def test_a_rank_knows_itself():
    seen = []

    def program(rank):
        seen.append((rank.index, rank.size, rank.lane, repr(rank)))

    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    execute(Job(3, host))
    assert seen == [(index, 3, 0, f"rank {index} of 3") for index in range(3)]
