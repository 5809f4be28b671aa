"""Small random straight-line programs, and all their schedules: what the checker is compared with."""

from __future__ import annotations

import torch

from harness import NotifyOp
from harness.fabric.execute import Job, execute

F32, INT = torch.float32, torch.int32
SLOTS, CELLS = 2, 2
TOUCHES = ("put", "put_signal", "load", "store", "remote_load", "get", "get_nbi", "put_nbi")


def drawn(random, ranks, length, sets=False):
    """A program a rank: tuples of an operation and its arguments."""

    def peer():
        return random.randrange(ranks)

    def operation():
        kind = random.choice(
            ("put", "put", "put_signal", "notify", "notify", "fence", "quiet", "wait", "wait", "load",
             "load", "store", "remote_load", "get", "sync") + (("set",) if sets else ())
        )
        slot, cell = random.randrange(SLOTS), random.randrange(CELLS)
        value = random.randint(1, 2)
        return {
            "put": ("put", peer(), slot), "store": ("store", slot), "load": ("load", slot),
            "put_signal": ("put_signal", peer(), slot, cell),
            "remote_load": ("remote_load", peer(), slot), "get": ("get", peer(), slot),
            "notify": ("notify", peer(), cell, 1), "set": ("set", peer(), cell, value),
            "wait": ("wait", cell, value), "fence": ("fence",), "quiet": ("quiet",), "sync": ("sync",),
        }[kind]

    lanes = [[operation() for _ in range(random.randint(1, length))] for _ in range(ranks)]
    meetings = min(sum(op[0] == "sync" for op in lane) for lane in lanes)
    for lane in lanes:
        while sum(op[0] == "sync" for op in lane) > meetings:
            lane.remove(("sync",))
    return lanes


def perform(rank, data, sig, mine, op, value):
    kind, *args = op
    if kind == "put":
        rank.put(data, args[0], torch.tensor([value]), args[1])
    elif kind == "put_signal":
        rank.put_signal(data, args[0], torch.tensor([value]), args[1], sig, args[2], 1)
    elif kind == "store":
        rank.store(data, torch.tensor([value]), args[0])
    elif kind == "load":
        return rank.load(data, args[0], 1).item()
    elif kind == "remote_load":
        return rank.remote_load(data, args[0], args[1], 1).item()
    elif kind == "get":
        rank.get(mine, args[0], data, args[1])
        return rank.load(mine, 0, 1).item()
    elif kind == "notify":
        rank.notify(sig, args[0], args[1], args[2])
    elif kind == "set":
        rank.notify(sig, args[0], args[1], args[2], op=NotifyOp.Set)
    elif kind == "wait":
        rank.wait(sig, args[0], args[1])
    else:
        getattr(rank, kind)()
    return None


class Choices:
    """A chooser that follows `path`, then takes the first owner; notes how many there were."""

    preemptions = 0

    def __init__(self, path):
        self.path = path
        self.taken = []

    def restart(self):
        self.taken = []

    def choose(self, simulation, lanes, ops):
        count = len(lanes) + len(ops)
        index = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append((index, count))
        return lanes[index] if index < len(lanes) else ops[index - len(lanes)]


def go(lanes, chooser=None):
    """One run, and what every read of every lane returned, by (lane, place in its program)."""
    values = {}

    def program(rank):
        data = rank.window("data", SLOTS, F32, init="zero")
        sig = rank.window("sig", CELLS, INT)
        mine = rank.buffer(1, F32)
        for place, op in enumerate(lanes[rank.index]):
            value = perform(rank, data, sig, mine, op, 10.0 * rank.index + place + 1)
            if value is not None:
                values[rank.index, place] = value

    def host(world):
        for rank in range(len(lanes)):
            world.dispatch(program, device=rank)

    return execute(Job(ranks=len(lanes), host=host, chooser=chooser)), values


def all_schedules(lanes, limit):
    """Every schedule's run and values, depth first; stops after `limit`. Says at the end if all."""
    path = []
    for _ in range(limit):
        chooser = Choices(path)
        yield go(lanes, chooser)
        taken = chooser.taken
        while taken and taken[-1][0] + 1 >= taken[-1][1]:
            taken.pop()
        if not taken:
            return
        path = [index for index, _ in taken]
        path[-1] += 1
