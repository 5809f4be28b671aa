"""Torch's modes of a thread: each lane has its own, and the caller keeps its."""

from __future__ import annotations

import contextlib

import torch

from harness.schedule import RandomWalk


def modes_of(rank):
    """Rank 0 is inside a mode while the others run."""
    seen = []
    with contextlib.ExitStack() as stack:
        if rank.index == 0:
            stack.enter_context(torch.inference_mode())
        if rank.index == 1:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        if rank.index == 2:
            stack.enter_context(torch.no_grad())
        for _ in range(3):
            rank.sync()
            seen.append((
                torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
                torch.is_grad_enabled(),
            ))
    rank.sync()
    seen.append((
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(),
    ))
    return seen


def test_torchs_modes_are_a_lanes_own_and_the_threads_stay(go):
    plain = (False, False, True)
    inside = [(True, False, False), (False, True, True), (False, False, False), plain]
    before = (
        torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(),
    )
    for seed in (None, 1, 2, 3):
        chooser = None if seed is None else RandomWalk(seed)
        run = go(modes_of, 4, chooser=chooser)
        assert run.results == [[[mode] * 3 + [plain]] for mode in inside]
        assert before == (
            torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
            torch.is_grad_enabled(),
        )
    with torch.inference_mode():
        run = go(lambda rank: (rank.sync(), torch.is_inference_mode_enabled())[1], 2)
        assert run.results == [[True], [True]]
        assert torch.is_inference_mode_enabled()
    assert not torch.is_inference_mode_enabled()


def test_a_lane_that_is_left_inside_a_mode_leaves_the_thread_alone(go):
    def program(rank):
        cell = rank.window("c", 1, torch.int32)
        with torch.inference_mode(), torch.autocast("cpu"):
            rank.wait(cell, 0, 1)

    for _ in range(2):
        assert go(program, 2).ended == "blocked"
        assert not torch.is_inference_mode_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()


def test_what_a_lane_leaves_set_does_not_reach_the_others(go):
    def program(rank):
        if rank.index == 0:
            torch.set_grad_enabled(False)
            return torch.is_grad_enabled()
        seen = []
        for _ in range(3):
            rank.load(rank.buffer(1, torch.float32), 0, 1)
            seen.append(torch.is_grad_enabled())
        return seen

    for seed in range(4):
        run = go(program, 3, chooser=RandomWalk(seed))
        assert run.results == [[False], [[True] * 3], [[True] * 3]]
        assert torch.is_grad_enabled()
