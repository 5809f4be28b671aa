"""Plain tensors given to operations in flight: what is seen of what the program does to them."""

from __future__ import annotations

import pytest
import torch

from harness import Hold, Plan, Visibility, run, scenario
from harness.errors import NonContiguous, WrongDtype
from harness.fabric.execute import Job, execute

NOTHING = {"reference": lambda size: [None] * size}


def putting(touch, *, quiet_first=False, again=False):
    """Rank 0 puts a tensor without waiting and does `touch` to it before quiet (or after)."""

    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            source = torch.arange(4.0)
            rank.put_nbi(window, 1, source)
            if again:
                rank.put_nbi(window, 1, source)
            if quiet_first:
                rank.quiet()
            touch(source)
            rank.quiet()
        rank.barrier()

    return program


def getting(touch, *, quiet_first=False):
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        rank.store(window, torch.full((4,), 7.0))
        rank.barrier()
        if rank.index == 0:
            into = torch.zeros(4)
            rank.get_nbi(into, 1, window)
            if quiet_first:
                rank.quiet()
            touch(into)
            rank.quiet()
        rank.barrier()

    return program


def judged(program, schedule=(), torn=0, **more):
    made = scenario(**NOTHING)(program)
    plan = Plan(
        scenario=made.name, params=made.params(), ranks=2, schedule=tuple(schedule),
        visibility=Visibility(torn=torn),
    )
    outcome = run(plan, scenario=made, **more)
    assert outcome.run.failures == []
    return outcome


def kinds(outcome):
    return [f.kind for f in outcome.findings]


def write(tensor):
    tensor.add_(1.0)


def write_by_numpy(tensor):
    tensor.numpy()[1] = 9.0


def write_a_view(tensor):
    tensor[2:].fill_(5.0)


def write_by_out(tensor):
    torch.mul(torch.ones(4), 3.0, out=tensor)


def read(tensor):
    return float(tensor.sum())


def only_look(tensor):
    return tensor.view(2, 2).t().shape, tensor.data_ptr(), tensor[1:].detach()


def write_the_same(tensor):
    tensor.mul_(1.0)


WRITES = (write, write_by_numpy, write_a_view, write_by_out)


@pytest.mark.parametrize("touch", WRITES)
@pytest.mark.parametrize("make", [putting, getting])
@pytest.mark.parametrize("schedule", [(), (Hold(0),)], ids=str)
@pytest.mark.parametrize("torn", [0, 8])
def test_a_write_before_quiet_is_found(make, touch, schedule, torn):
    outcome = judged(make(touch), schedule, torn)
    assert kinds(outcome) == ["tensor_written_in_flight"]
    (found,) = outcome.findings
    assert found.rank == 0
    assert f"rank 0's {'put' if make is putting else 'get'}_nbi #0" in found.message
    by_numpy = touch is write_by_numpy
    assert ("stands still" if by_numpy else "went from") in found.evidence[1]


@pytest.mark.parametrize("touch", [*WRITES, read, only_look])
@pytest.mark.parametrize("make", [putting, getting])
@pytest.mark.parametrize("watch", [False, True])
def test_whatever_comes_after_quiet_is_right(make, touch, watch):
    outcome = judged(make(touch, quiet_first=True), (Hold(0),), watch=watch, races=True)
    assert kinds(outcome) == []


@pytest.mark.parametrize("make", [putting, getting])
@pytest.mark.parametrize("watch", [False, True])
def test_views_and_shapes_are_no_accesses(make, watch):
    assert kinds(judged(make(only_look), watch=watch)) == []


def test_reads_are_seen_by_watching_only():
    assert kinds(judged(getting(read))) == []
    outcome = judged(getting(read), watch=True)
    assert kinds(outcome) == ["tensor_read_in_flight"]
    line = " ".join(outcome.findings[0].evidence)
    assert "called aten.sum.default at" in line
    assert "in read" in line
    assert kinds(judged(putting(read), watch=True)) == []  # a source may be read


@pytest.mark.parametrize("touch", [write, write_a_view, write_by_out, write_the_same])
@pytest.mark.parametrize("make", [putting, getting])
def test_watching_names_the_operation_and_its_line(make, touch):
    outcome = judged(make(touch), watch=True)
    assert kinds(outcome) == ["tensor_written_in_flight"]
    line = " ".join(outcome.findings[0].evidence)
    assert "rank 0 called aten." in line
    assert f"in {touch.__name__}" in line


def test_watching_changes_nothing_else():
    for program in (putting(write), getting(read), putting(only_look)):
        plain, watched = judged(program), judged(program, watch=True)
        assert plain.run.identity() == watched.run.identity()
        assert plain.run.value_identity() == watched.run.value_identity()


def test_a_write_of_the_same_bytes_needs_watching():
    assert kinds(judged(putting(write_the_same))) == []


def test_what_arrives_is_read_at_delivery():
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            source = torch.arange(4.0)
            rank.put_nbi(window, 1, source)
            rank.fence()
            source.fill_(8.0)
        rank.barrier()
        return rank.load(window, 0, 4).tolist()

    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    assert execute(Job(2, host)).results[1] == [[0.0, 1.0, 2.0, 3.0]]
    assert execute(Job(2, host, schedule=(Hold(0),))).results[1] == [[8.0] * 4]


def test_a_get_fills_the_tensor():
    def program(rank):
        window = rank.window("w", 4, torch.int32)
        rank.store(window, torch.arange(4, dtype=torch.int32) + 10 * rank.index)
        rank.barrier()
        into = torch.zeros(2, 2, dtype=torch.int32)
        rank.get_nbi(into, 1 - rank.index, window)
        rank.quiet()
        return into.tolist()

    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    assert execute(Job(2, host)).results == [[[[10, 11], [12, 13]]], [[[0, 1], [2, 3]]]]


def test_one_tensor_is_one_memory():
    outcome = judged(putting(only_look, again=True), races=True)
    assert [known.kind for known in outcome.run.names] == ["window", "tensor"]
    assert kinds(outcome) == ["unordered_write"]  # two puts to the same place, no fence between


def test_a_lane_that_is_never_quiet_is_looked_at_in_the_end():
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            source = torch.arange(4.0)
            rank.put_nbi(window, 1, source)
            rank.load(window, 0, 1)
            source.add_(1.0)

    assert kinds(judged(program)) == ["tensor_written_in_flight"]


@pytest.mark.parametrize(
    ("tensor", "error", "words"),
    [
        (torch.zeros(4, 2)[:, 0], NonContiguous, "put_nbi with a strided tensor, shape [4]"),
        (torch.zeros(4, dtype=torch.complex64), WrongDtype, "put_nbi: given dtype torch.complex64"),
        (torch.zeros(4, dtype=torch.int32), WrongDtype, "dtypes differ"),
    ],
)
def test_tensors_that_cannot_be_in_flight(tensor, error, words):
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            rank.put_nbi(window, 1, tensor)

    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    (failure,) = execute(Job(2, host)).failures
    assert type(failure.error) is error
    assert words in str(failure.error)


def test_tensors_of_inference_mode_have_no_version():
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            with torch.inference_mode():
                source = torch.arange(4.0)
            rank.put_nbi(window, 1, source)
            source.numpy()[0] = 4.0
        rank.barrier()

    assert kinds(judged(program)) == ["tensor_written_in_flight"]
