"""A small right system with mutants that are caught, survive or are wrongly declared, and a wrong one."""

import dataclasses

import torch

from harness import mutant, scenario, values


def from_left(size):
    return [values((rank - 1) % size, 2) for rank in range(size)]


def order(rank):
    """What keeps the notify behind the put."""
    rank.fence()


def unused(rank):
    """Nobody calls this."""


def exchange(rank):
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    order(rank)
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)


def no_fence(rank):
    """Nothing orders the two."""


def quiet_for_fence(rank):
    """Slower, and right as well."""
    rank.quiet()


def of_order(replacement, expects="integrity/unwritten_memory", ranks=1):
    return mutant(of=order, expects=expects, ranks=ranks)(replacement)


MUTANTS = {
    "caught": of_order(no_fence),
    "another_kind": of_order(no_fence, expects="deadlock/cycle"),
    "too_large": of_order(no_fence, ranks=2),
    "no_such_world": of_order(no_fence, ranks=4),
    "as_good": of_order(quiet_for_fence),
    "never_called": mutant(of=unused, expects="deadlock/cycle", ranks=1)(no_fence),
}


@scenario(reference=from_left, ranks=(1, 3))
def bare(rank):
    """Right."""
    return exchange(rank)


@scenario(reference=from_left, ranks=(1, 3))
def unfenced(rank):
    """Wrong, although no bug is planted."""
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    rank.notify(flag, right, 0, 1)
    order(rank)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)


@scenario(reference=from_left, ranks=(1, 3))
def fenced_twice(rank):
    """Right without its fence as well, because it waits for all that it sent."""
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    rank.fence()
    rank.quiet()
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)


RIGHT = dataclasses.replace(bare, name="right", mutants=MUTANTS)
WRONG = dataclasses.replace(unfenced, name="wrong", mutants={"on_top": MUTANTS["caught"]})
