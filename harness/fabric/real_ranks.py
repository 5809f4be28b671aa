"""Real ranks of a torch.distributed script on this machine: forked, watched, judged by what they leave.

    run_real("train.py", ["--steps", "3"], ranks=4, faults=[LateCall(rank=1)]).findings()

The script is not changed: it runs behind interposed groups (frontends/torch_distributed/interposed.py),
in the environment that torchrun would give it, with a rendezvous store in a process of its own, which
outlives rank 0 as torchrun's does. Processes are forked by the zygote, which has imported torch: a world
costs about a tenth of a second. The deadlines are held here: a group's time-out is at most the operation
limit; after the first bad end every other rank has five of it from its last call, since gloo takes as
long to give up a connection; the whole world has the plan limit. Linux only.

Not modelled: scripts that are modules, ranks that join later, restarts. Several machines: torchrun.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch

from harness import registry
from harness.ambient import now, today
from harness.errors import EngineError, NotHere, PlanError, UsageError
from harness.fabric.real_outcome import RankOutcome, RealOutcome
from harness.fabric.script_rank import Part, decoded
from harness.plan import RANKS_MAX, Fault
from harness.supervise import START_SECONDS, Child, Limits, stacks, state, supervised, zygote

CONNECTING = 5  # gloo gives a connection that is being made so many of the group's time-outs
MARGIN = 3.0  # seconds beyond that, for the process to end
TICK = 0.02
LATE_SECONDS = 5.0  # that a look may be late, on a busy machine
HOST = "127.0.0.1"
BACKENDS = ("", "gloo", "nccl")


class Wires(Protocol):
    """A network between the ranks (harness/network.py). keepers, addresses: by rank."""

    keepers: Sequence[int]
    addresses: Sequence[str]
    device: str

    def pauses(self, rank: int) -> tuple[int, ...]:
        """The calls, by number, before which the rank must wait for `step`."""
        ...

    def step(self, calls: Sequence[int], waiting: Sequence[bool]) -> None:
        """The ranks have begun so many calls, and some of them wait: do what is due."""
        ...


class Watched:
    """One script's process with what it leaves behind."""

    def __init__(self, rank: int, start: Callable[[list[int]], Child]) -> None:
        self.rank = rank
        self.record = os.memfd_create("rankfault-calls")
        self.out = os.memfd_create("rankfault-out")
        self.order, self.seconds, self.expired, self.stack = -1, 0.0, "", ""
        self.ended = 0.0  # when, by the machine's clock
        self.calls, self.moved = 0, now()  # lines of its record, and since when so many
        self.child = start([self.record, self.out])

    def look(self) -> None:
        """See how far it has come."""
        calls = _whole(self.record).count(b"\n")
        if calls != self.calls:
            self.calls, self.moved = calls, now()

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the signal; None while it runs."""
        ending = self.child.ended()
        return None if ending is None else ending.code

    def note_end(self) -> tuple[float, bool]:
        """Note when it ended, as nearly as can be known: it last wrote anything, or its script was over
        (script_rank.py), though not longer ago than a look may be late. What bad ends are ordered by."""
        last = max(os.fstat(fd).st_mtime for fd in (self.record, self.out, self.child.log))
        self.ended = max(last, today() - LATE_SECONDS)
        return self.ended, (self.code or 0) >= 0  # at the same moment a signal is the cause

    @property
    def stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP), as it is at a pause."""
        return self.code is None and state(self.child.pid) == "T"

    def outcome(self) -> RankOutcome:
        """What became of it, once it has ended."""
        ending = self.child.ended() or self.child.stop(grace=0)
        return RankOutcome(
            rank=self.rank, code=ending.code, order=self.order, seconds=self.seconds, log=ending.log,
            printed=_whole(self.out).decode(errors="replace"), record=_whole(self.record).decode(),
            expired=self.expired, stack=self.stack, ended=self.ended,
        )

    def close(self) -> None:
        """End it and free what it left."""
        self.child.close()
        os.close(self.record)
        os.close(self.out)


def _whole(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


class Watch:
    """Waits for all of them, within the limits, and numbers those that end badly.

    each: called at every look. failed_elsewhere: whether a rank of another machine has ended badly.
    """

    def __init__(
        self, watched: Sequence[Watched], limits: Limits, each: Callable[[], None] = lambda: None,
        failed_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        self._running = list(watched)
        self._limits = limits
        self._each = each
        self._failed_elsewhere = failed_elsewhere
        self._ends = now() + limits.plan
        self._failed: float | None = None
        self._bad = 0

    def until_all_have_ended(self) -> None:
        """Return when no process is left; those whose limit came leave their stacks and are killed."""
        while self._running:
            poll = select.poll()
            for one in self._running:
                if one.child.pidfd >= 0:
                    poll.register(one.child.pidfd, select.POLLIN)
            poll.poll(TICK * 1000)
            for one in self._running:
                one.look()
            ended = [one for one in self._running if one.code is not None]
            for one in sorted(ended, key=Watched.note_end):
                if one.code:
                    self._ended_badly(one)
            self._running = [one for one in self._running if one.code is None]
            self._each()
            if self._failed is None and self._failed_elsewhere():
                self._failed = now()
            self._expire()

    def _ended_badly(self, one: Watched) -> None:
        one.order, self._bad = self._bad, self._bad + 1
        one.seconds = now() - self._failed if self._failed is not None else 0.0
        self._failed = self._failed or now()

    def _limit(self, one: Watched) -> str:
        """The limit of a rank that has passed; "" if none has."""
        if now() > self._ends:
            return f"plan limit of {self._limits.plan:g} s"
        after = CONNECTING * self._limits.operation + MARGIN
        if self._failed is not None and now() > max(self._failed, one.moved) + after:
            return f"operation limit of {self._limits.operation:g} s, {CONNECTING} times"
        return ""

    def _expire(self) -> None:
        late = [one for one in self._running if self._limit(one)]
        if not late:
            return
        for one, stack in zip(late, stacks([one.child for one in late]), strict=True):
            one.expired, one.stack = self._limit(one), stack
        for one in late:
            one.child.stop(grace=0)
            one.ended = today()
            self._ended_badly(one)
        self._running = [one for one in self._running if not one.expired]


def run_real(
    path: str, argv: Sequence[str] = (), ranks: int = 2, *, backend: str = "",
    faults: Sequence[Fault] = (), limits: Limits | None = None, network: Wires | None = None,
    env: Mapping[str, str] | None = None, preload: Sequence[str] = (),
) -> RealOutcome:
    """Run the script at `path` with `ranks` real processes on this machine; what became of them.

    backend: made instead of the one that the script asks for, "" = the script's. limits.operation: the
    longest time-out that a group may have; limits.plan: for the whole world; both in seconds. network:
    each rank lives in a namespace of it. env: for each rank, beside what torchrun would give it. preload:
    modules that are imported once for all later worlds; DDP's and FSDP's ranks begin 2 s sooner with
    torch._dynamo.
    Raises UsageError, PlanError, NotHere.
    """
    limits = limits or Limits()
    plain = checked(path, backend, faults, ranks)
    if network is not None and len(network.addresses) != ranks:
        raise UsageError(f"network: it has room for {len(network.addresses)} ranks, given {ranks}")
    if faults:
        zygote().preload([module.__name__ for module in registry.modules()])
    zygote().preload(["harness.fabric.script_rank", *preload])
    host = network.addresses[0] if network else HOST
    with contextlib.ExitStack() as stack:
        port = _store(stack, host, network.keepers[0] if network else 0)
        watched: list[Watched] = []
        for rank in range(ranks):
            part = Part(
                path=path, argv=tuple(argv), folder=os.getcwd(), faults=plain, limit=limits.operation,
                backend=backend, network=network.keepers[rank] if network else 0,
                pauses=network.pauses(rank) if network else (), near=True,
                env={
                    **_environment(rank, ranks), "MASTER_ADDR": host, "MASTER_PORT": str(port),
                    "GLOO_SOCKET_IFNAME": network.device if network else "lo", **(env or {}),
                },
            )
            watched.append(Watched(rank, _starter(part)))
            stack.callback(watched[-1].close)

        def each() -> None:
            if network is not None:
                waiting = [one.stopped for one in watched]
                network.step([one.calls for one in watched], waiting)
                for one, waits in zip(watched, waiting, strict=True):
                    if waits:
                        one.child.signal(signal.SIGCONT)

        Watch(watched, limits, each).until_all_have_ended()
        outcomes = tuple(one.outcome() for one in watched)
    return RealOutcome(path=path, ranks=outcomes, faults=tuple(faults), subject=subject(backend))


def _starter(part: Part) -> Callable[[list[int]], Child]:
    value = msgspec.to_builtins(part)
    return lambda fds: supervised("harness.fabric.script_rank:begin", value, fds)


def _environment(rank: int, ranks: int) -> dict[str, str]:
    """What torchrun sets on one machine."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1",
        "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "rankfault",
    }


def subject(backend: str = "") -> str:
    """What is under test, with its version."""
    return f"{backend or 'the backend it asks for'}, torch {torch.__version__}"


def checked(path: str, backend: str, faults: Sequence[Fault], ranks: int) -> tuple[dict[str, Any], ...]:
    """The faults as plain data, after what cannot run here was refused.

    Raises UsageError, PlanError, NotHere.
    """
    if not 1 <= ranks <= RANKS_MAX:
        raise UsageError(f"ranks: given {ranks}; allowed 1..{RANKS_MAX}")
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such script")
    if backend not in BACKENDS:
        raise UsageError(f"backend: given {backend!r}; allowed: gloo, nccl, or none for the script's own")
    if backend == "nccl" and not torch.cuda.is_available():
        raise NotHere("backend nccl: it needs a CUDA device, and this machine has none")
    plain = tuple(msgspec.to_builtins(fault) for fault in faults)
    for index, fault in enumerate(decoded(plain, "faults")):
        if not 0 <= fault.rank < ranks:
            raise PlanError(f"faults[{index}].rank: {fault.rank} is outside 0..{ranks - 1}")
    return plain


def _store(stack: contextlib.ExitStack, host: str, network: int) -> int:
    """Start the world's store in a process of its own; its port."""
    ours, theirs = os.pipe()
    stack.callback(os.close, ours)
    try:
        server = supervised("harness.fabric.script_rank:serve", [host, network], [theirs])
    finally:
        os.close(theirs)
    stack.callback(server.close)
    ready, _, _ = select.select([ours], [], [], START_SECONDS)
    told = os.read(ours, 16) if ready else b""
    if not told:
        raise EngineError(f"the rendezvous store did not start: {server.printed()}")
    return int(told)
