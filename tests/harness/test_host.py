"""Host programs: every rule with its error, and what the ranks get to see."""

from __future__ import annotations

import pytest
import torch

from harness.errors import (
    DispatchError,
    Misaligned,
    NonContiguous,
    NotShared,
    OutOfBounds,
    WrongDtype,
    WrongHandle,
    WrongShape,
)
from harness.fabric.execute import Job, execute
from harness.host import World


def kernel(rank, *args):
    return args


def shared(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype).share_memory_()


def test_dispatched_arguments_arrive_as_handles_of_the_rank():
    def program(rank, window, tensor, number):
        rank.store(window, float(rank.index))
        rank.store(tensor, torch.tensor([float(number)]), rank.index)
        rank.barrier()
        return rank.remote_load(window, (rank.index + 1) % rank.size, 0, 1).item()

    def host(world):
        out = shared(3)
        window = world.alloc([1], torch.float32)
        world.prepare(out)
        for index in range(world.size):
            world.dispatch(program, window, out, index + 10, device=index)
        return {"out": [out] * world.size}

    run = execute(Job(3, host))
    assert run.results == [[1.0], [2.0], [0.0]]
    assert run.observed["out"][0].tolist() == [10.0, 11.0, 12.0], "shared memory comes back"
    assert [(record.kind, record.name) for record in run.names] == [
        ("window", "window0"),
        ("host tensor", "out"),
    ]


def test_rounds_run_one_after_the_other():
    def host(world):
        for number in range(3):
            for index in reversed(range(world.size)):
                world.dispatch(kernel, number, device=index)

    assert execute(Job(2, host)).results == [[(0,), (1,), (2,)]] * 2


def test_windows_by_bytes_or_by_shape():
    world = World(2)
    assert repr(world.alloc(64)) == "window 'window0' [64] uint8"
    assert world.alloc([2, 3], torch.float16, name="h").nbytes == 12
    assert [
        window.zero
        for window in (
            world.alloc(4),
            world.alloc(4, torch.int32),
            world.alloc(4, torch.float32),
            world.alloc(4, torch.float32, init="zero"),
            world.alloc(4, init="poison"),
        )
    ] == [True, True, False, True, False]


def test_views_of_host_windows():
    world = World(2)
    window = world.alloc(64)
    view = window.view([2, 2], torch.float32, 16)
    assert (view.number, view.offset, view.shape) == (0, 16, (2, 2))
    assert view.view(1, torch.int32, 4).offset == 20
    with pytest.raises(Misaligned, match="byte offset 18: float32 needs a multiple of 4"):
        window.view(1, torch.float32, 18)
    with pytest.raises(
        OutOfBounds, match=r"needs 128 bytes .* has 64 there .* never a count of ranks"
    ):
        window.view(32, torch.float32)
    with pytest.raises(OutOfBounds, match="byte offset -4"):
        window.view(1, torch.float32, -4)
    with pytest.raises(WrongShape, match=r"host: view of window 'window0' .* \[-1\]"):
        window.view((-1,), torch.float32)


def test_a_window_is_no_tensor_on_the_host():
    window = World(1).alloc(4)
    with pytest.raises(WrongHandle, match=r"rank.load"):
        torch.add(window, 1)


def test_bad_windows():
    with pytest.raises(WrongShape, match=r"host: alloc of 'w' of shape .* 0 or more"):
        World(1).alloc((-4,), name="w")
    with pytest.raises(WrongDtype, match="complex64"):
        World(1).alloc(4, torch.complex64)


@pytest.mark.parametrize("ids", [[4], [4, 4], [1, 2, 3]])
def test_device_ids_are_distinct_and_as_many_as_ranks(ids):
    with pytest.raises(DispatchError, match="2 distinct cards"):
        World(2, ids)


def test_device_ids_need_be_neither_zero_based_nor_contiguous():
    def host(world):
        assert world.device_ids == (4, 9)
        for index, _ in enumerate(world.device_ids):
            world.dispatch(kernel, device=index)

    assert execute(Job(2, host, device_ids=[4, 9])).results == [[()], [()]]
    world = World(2, [4, 9])
    with pytest.raises(
        DispatchError, match=r"device=9 .* 0\.\.1: 9 is a card .* logical rank is 1"
    ):
        world.dispatch(kernel, device=9)
    with pytest.raises(DispatchError, match=r"device=2 is outside the logical ranks 0\.\.1$"):
        world.dispatch(kernel, device=2)


def test_tensors_come_before_scalars():
    world = World(1)
    window = world.alloc(4)
    with pytest.raises(
        DispatchError, match="argument 1 is the scalar 7, but the tensor at argument 2"
    ):
        world.dispatch(kernel, window, 7, window, device=0)
    world.dispatch(kernel, window, window, 7, "text", device=0)


def test_a_tensor_must_be_prepared_shared_and_dense():
    world = World(1)
    with pytest.raises(DispatchError, match="argument 0 was never prepared"):
        world.dispatch(kernel, shared(2), device=0)
    mine = torch.ones(2)
    with pytest.raises(NotShared, match=r"'mine' .* mine\.share_memory_\(\)"):
        world.prepare(mine)
    strided = shared(4, 4).t()
    with pytest.raises(NonContiguous, match=r"'strided' .* strided\.contiguous\(\)"):
        world.prepare(strided)
    with pytest.raises(WrongHandle, match="only torch tensors"):
        world.prepare(3)


def test_every_rank_is_dispatched_once_a_round():
    world = World(3)
    world.dispatch(kernel, device=0)
    with pytest.raises(DispatchError, match=r"rank 0 is dispatched again before rank 1 .* round 0"):
        world.dispatch(kernel, device=0)
    world.dispatch(kernel, device=2)
    with pytest.raises(DispatchError, match=r"no dispatch for rank 1; .* all 3 device_ids"):
        world.finished()
    world.dispatch(kernel, device=1)
    assert world.finished().size == 3


def test_no_dispatch_at_all_is_a_loop_too_short():
    with pytest.raises(DispatchError, match="round 0: no dispatch for ranks 0, 1;"):
        World(2).finished()


def test_an_error_of_the_host_program_is_a_failure_of_minus_one():
    def host(world):
        world.dispatch(kernel, device=5)

    run = execute(Job(2, host))
    (failure,) = run.failures
    assert (failure.lane, type(failure.error), run.ended) == (-1, DispatchError, "returned")
    assert "test_host.py" in failure.traceback
    assert failure.code is host.__code__
    assert (run.raw, run.results, run.blocked) == ([], [], [])


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_host_tensors_of_any_dtype_and_shape(dtype, shape):
    def program(rank, tensor):
        return rank.load(tensor, 0, shape)

    def host(world):
        tensor = torch.ones(shape, dtype=dtype).share_memory_()
        world.prepare(tensor)
        world.dispatch(program, tensor, device=0)

    ((loaded,),) = execute(Job(1, host)).results
    assert torch.equal(loaded, torch.ones(shape, dtype=dtype))
