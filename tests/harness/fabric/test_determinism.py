"""Same plan, same identities: again, and in fresh processes under other hash seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

from harness.fabric.execute import Job, execute
from harness.plan import Hold, Preempt

SIZE = 4
SCHEDULES = [
    (),
    (Hold(0),),
    (Hold(1, 3), Hold(2)),
    (Preempt(3, 1),),
    (Preempt(0, 2), Hold(4), Preempt(9)),
]


def program(rank):
    """Sets of strings, random numbers, windows, late operations and a rank that raises."""
    names = {f"w{number}" for number in range(5)}
    windows = [rank.window(name, 4, torch.float32) for name in sorted(names)]
    cells = rank.window("c", rank.size, torch.int32)
    noise = torch.rand(4)
    for peer in range(rank.size):
        rank.put(windows[peer % 5], peer, noise)
        rank.notify(cells, peer, rank.index, 1)
    rank.fence()
    rank.wait(cells, (rank.index + 1) % rank.size, 1)
    total = rank.load(windows[0], 0, 4).nan_to_num().sum().item()
    if rank.index == 2:
        raise ValueError("after the wait")
    rank.sync()
    return total


def host(world):
    for index in range(world.size):
        world.dispatch(program, device=index)


def identities():
    found = []
    for schedule in SCHEDULES:
        run = execute(Job(SIZE, host, schedule=schedule))
        found.append((run.identity(), run.value_identity(), run.ended, repr(run.results)))
    return found


def test_the_same_run_again_has_the_same_identities():
    first = identities()
    torch.rand(3)
    assert identities() == first
    assert len({identity for identity, *_ in first}) == len(SCHEDULES)


def test_a_fresh_process_under_another_hash_seed_has_them_too():
    for seed in ("1", "4242"):
        told = subprocess.run(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.splitlines() == [repr(found) for found in identities()]


if __name__ == "__main__":
    for each in identities():
        print(each)  # noqa: T201
