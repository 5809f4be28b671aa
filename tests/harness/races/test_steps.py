"""Which elements count as cells, which reads as polls, and what the program alone orders."""

from __future__ import annotations

import torch

from harness.races.steps import Steps

F32, INT = torch.float32, torch.int32


def at(run, kind, lane=0):
    return [i for i, e in enumerate(run.raw) if e[1] == kind and e[0] == lane]


def test_single_int32_elements_that_are_put_alone_are_flags(go):
    def program(rank):
        flags, data = rank.window("flags", 4, INT), rank.window("data", 4, F32)
        if rank.index:
            rank.put(flags, 0, torch.ones(1, dtype=INT), 1)
            rank.put(flags, 0, torch.ones(2, dtype=INT), 2)
        else:
            for place in (1, 2):
                rank.load(flags, place, 1)
            rank.load(data, 1, 1)
            rank.load(flags, 0, 2)

    run = go(program, 2)
    steps = Steps(run)
    assert list(steps.cells) == [(0, 0, 4)]
    assert steps.polls == {at(run, "load")[0]}
    assert [step.at for step in steps.steps if step.kind == "read"] == [
        at(run, "load")[0], at(run, "load")[3]
    ]


def test_a_cell_starts_at_what_the_record_tells(go):
    def program(rank):
        cells = rank.window("c", 2, INT, init="poison")
        rank.notify(cells, rank.index, 0, 5)
        rank.wait(cells, 1, 1)
        rank.notify(cells, rank.index, 1, 5)

    cells = Steps(go(program, 1)).cells
    assert {cell.initial for cell in cells.values()} == {0x7FF4DEAD}
