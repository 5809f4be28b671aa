"""`judge`: run one rank program of a test. `torch_world`: run a program of a small stand-in for
torch.distributed, which makes the calls' values as the front end does and moves no data."""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial

import pytest
from greenlet import getcurrent, greenlet

from harness import Plan, Scenario, run
from harness.checkers.torch_program import TorchProgram
from harness.errors import CollectiveMismatch
from harness.frontends.torch_distributed.agreement import disagreement, message_disagreement
from harness.frontends.torch_distributed.calls import ANY, Call, TensorMeta
from harness.frontends.torch_distributed.names import names_of
from harness.record import Blocked, Failure, Run

KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "barrier", "scatter", "gather")


@pytest.fixture
def judge():
    def judged(scenario: Scenario, ranks: int, *schedule, faults=(), **params):
        plan = Plan(
            scenario=scenario.name, params=scenario.params(**params), ranks=ranks,
            faults=faults, schedule=schedule,
        )
        return run(plan, scenario=scenario)

    return judged


class World:
    """Ranks as greenlets; a call is complete when all that it needs has come, and agrees."""

    def __init__(self, size):
        self.size, self.calls, self.raw = size, [[] for _ in range(size)], []
        self.seqs, self.met, self.done = defaultdict(int), defaultdict(list), {}
        self.waits, self.stuck, self.failures = {}, {}, []

    def make(self, rank, kind, tensor, frame, *, group=None, out=True, **fields):
        group = tuple(range(self.size)) if group is None else tuple(group)
        message = (kind, fields["peer"], fields.get("tag")) if kind in ("send", "recv") else ()
        key = (rank, group, *message)
        metas = () if tensor is None else (meta(tensor),)
        others = {}
        call = Call(
            kind, rank, group, str(list(group)), self.seqs[key], number=sum(map(len, self.calls)),
            inputs=metas if kind != "recv" else (), outputs=metas if out and kind != "send" else (),
            code=frame.f_code, lasti=frame.f_lasti, at=len(self.raw), **fields,
            names=() if tensor is None else names_of(
                tensor, frame, lambda code: code.co_filename == frame.f_code.co_filename, others),
            version=-1 if tensor is None else tensor._version,
            beside=tuple(
                (meta(t).storage, t._version) for t in others.values()
                if meta(t).storage != metas[0].storage
            ),
        )
        self.seqs[key] += 1
        self.calls[rank].append(call)
        self.raw.append((rank, kind, -1, -1, 0, 0, None, call.number, call.code, call.lasti))
        if rank in group:
            self.meet(call)
        else:
            self.finish([call], None)
        return call

    def meet(self, call):
        if not call.p2p:
            made = self.met[call.group_name, call.seq]
            made.append(call)
            differ = disagreement(made)
            if differ or len(made) == len(call.group):
                self.finish(made, differ)
            return
        ends = self.met["messages", call.group_name, call.tag]
        for other in ends:
            if other.kind != call.kind and other.peer in (call.rank, ANY) and (
                call.peer in (other.rank, ANY)
            ):
                ends.remove(other)
                send, receive = (call, other) if call.kind == "send" else (other, call)
                self.finish([send, receive], message_disagreement(send, receive))
                return
        ends.append(call)

    def finish(self, calls, differ):
        for call in calls:
            self.done[call.number] = differ
            if differ is None:
                self.raw.append((-1, "complete", -1, call.rank, 0, 0, None, call.number, None, -1))

    def wait(self, call, frame):
        while call.number not in self.done:
            self.stuck[call.rank] = call
            getcurrent().parent.switch()
        self.stuck.pop(call.rank, None)
        if self.done[call.number]:
            raise CollectiveMismatch(self.done[call.number].text)
        if call.async_op:
            self.waits[call.number] = (frame.f_code, frame.f_lasti)
        self.raw.append((call.rank, "wait_work", -1, -1, 0, 0, None, call.number, None, -1))

    def run(self, program):
        lanes = [greenlet(partial(self._lane, program, rank)) for rank in range(self.size)]
        moved = -1
        while moved != len(self.raw):
            moved = len(self.raw)
            for lane in lanes:
                if not lane.dead:
                    lane.switch()
        blocked = [
            Blocked(rank, rank, "work", -1, 0, 0, 0, "==", call.code, call.lasti,
                    f"{call.kind} #{call.number}")
            for rank, call in sorted(self.stuck.items())
        ]
        results = [[None] if lane.dead else None for lane in lanes]
        for failure in self.failures:
            results[failure.rank] = None
        return Run(
            ranks=self.size, lanes=[(rank, 0) for rank in range(self.size)], raw=self.raw,
            memory=list, guards_intact=True, results=results, observed=None, expected=None,
            failures=self.failures, blocked=blocked, dead=[], peers_lost=[], fired=[],
            deviations_applied=0, calls=[[] for _ in range(self.size)], points=0, operations=0,
            ended="blocked" if blocked else "returned", torch_calls=self.calls, torch_waits=self.waits,
        )

    def _lane(self, program, rank):
        try:
            program(Dist(self, rank), rank)
        except Exception as error:
            self.failures.append(Failure(rank, rank, len(self.raw), error, "", None, -1, "raise"))


class Handle:
    def __init__(self, world, call):
        self.world, self.call = world, call

    def wait(self):
        self.world.wait(self.call, sys._getframe(1))


class Dist:
    """What one rank calls. root and peer are given as `root=` and `peer=`, a recv's tensor as any."""

    def __init__(self, world, rank):
        self.world, self.rank = world, rank

    def __getattr__(self, name):
        kind = {"isend": "send", "irecv": "recv"}.get(name, name)

        def called(tensor=None, *, async_op=name in ("isend", "irecv"), **fields):
            call = self.world.make(
                self.rank, kind, tensor, sys._getframe(1), async_op=async_op, **fields
            )
            if async_op:
                return Handle(self.world, call)
            if self.rank in call.group:
                self.world.wait(call, sys._getframe(1))
            return None

        return called


def meta(tensor):
    lo = tensor.storage_offset() * tensor.element_size()
    return TensorMeta(
        tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.stride(),
        tensor.untyped_storage().data_ptr(), lo, lo + tensor.numel() * tensor.element_size(),
    )


@pytest.fixture
def torch_world():
    """`torch_world(program, ranks)`: the record and the findings of `program(dist, rank)`."""

    def world(program, ranks):
        record = World(ranks).run(program)
        return record, list(TorchProgram().check(record))

    return world
