"""The processes of one world: started, told what to do, waited for within limits, replaced.

A crew has room for a number of ranks and serves every plan of up to so many. Its processes are kept from
plan to plan; one that has ended is replaced before the next plan. They start in one of three ways:
fork = forked by the zygote, which has imported all scenarios that are registered; forkserver = forked by
it too, but each imports what it runs by itself; spawn = each a fresh interpreter. For a scenario
that no other process could import by name (defined in a function, or changed since it was loaded) a crew
is forked from the harness itself, for that one plan.

Each process has two pipes: commands to it, and a byte from it when it has come to its next operation.
Everything else stands in the shared arena (arena.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable

from harness import registry
from harness.ambient import now
from harness.errors import EngineError
from harness.fabric.arena import Arena
from harness.fabric.rank_engine import COMMAND, DONE, EXIT
from harness.supervise import START_SECONDS, Child, Deadline, Ending, forked, stacks, supervised, zygote

END_SECONDS = 10.0  # for a process to be done with a plan that is over
ENTRY = "harness.fabric.rank_process:begin"
ROOM = 4  # of the crew that is kept, unless a plan needs more

Body = Callable[[int, int, int], None]  # of a forked process: rank, commands, wakes


class Member:
    """One rank's process. commands, wakes: the harness's ends of its pipes."""

    def __init__(
        self, arena: Arena, rank: int, body: Body | None, others: list[Member], start: str = "fork"
    ) -> None:
        theirs, self.commands = os.pipe()
        self.wakes, wakes = os.pipe()
        self.wedged = False  # it must not be used for another plan
        self.expired = ""  # the limit at which it was killed
        self.stacks: list[str] = []  # of all ranks, then
        self.mark = 0
        self.child: Child
        try:
            if body is None:
                fds = [arena.fd, theirs, wakes]
                if start == "spawn":
                    self.child = supervised("harness.zygote:spawn", [ENTRY, [rank, arena.size]], fds)
                else:
                    self.child = supervised(ENTRY, [rank, arena.size], fds)
            else:
                ours = [self.commands, self.wakes]
                ours += [fd for other in others for fd in (other.commands, other.wakes)]

                def begin() -> None:
                    for fd in ours:
                        os.close(fd)
                    body(rank, theirs, wakes)

                self.child = forked(begin)
        finally:
            os.close(theirs)
            os.close(wakes)
        self._poll = select.poll()
        self._poll.register(self.wakes, select.POLLIN)
        if self.child.pidfd >= 0:
            self._poll.register(self.child.pidfd, select.POLLIN)

    def begun(self) -> None:
        """Wait until it has imported what it needs. Raises EngineError."""
        if not self.woke(START_SECONDS):
            ending = self.child.ended() or f"it is not there after {START_SECONDS:g} s"
            raise EngineError(f"the process of a rank did not start: {ending}")

    def send(self, data: bytes) -> None:
        """Write to its commands; a process that is gone is noticed when it is waited for."""
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self.commands, data) :]

    def woke(self, seconds: float) -> bool | None:
        """Wait for its byte: True; False when it has ended; None after so many seconds."""
        events = self._poll.poll(max(seconds, 0) * 1000)
        if not events:
            return None
        for fd, event in events:
            if fd == self.wakes and event & select.POLLIN:
                return bool(os.read(self.wakes, 1))
        return False

    def close(self) -> None:
        """End it, at once."""
        self.child.close()
        os.close(self.commands)
        os.close(self.wakes)


class Crew:
    """The processes of a world, by rank, and the arena that they share; `start` forks them."""

    def __init__(self, room: int, how: str = "fork") -> None:
        """how: one of supervise.STARTS."""
        self.how = how
        fd = os.memfd_create("rankfault-world")
        self.arena = Arena(fd, room, make=True)
        self.owner = os.getpid()
        self.members: list[Member] = []
        self.deadline: Deadline

    def start(self, body: Body | None = None) -> None:
        """Start a process for each rank. body: what each does, if it is forked from here."""
        for rank in range(self.arena.size):
            self.members.append(Member(self.arena, rank, body, self.members, self.how))
        if body is None:
            for member in self.members:
                member.begun()

    def mend(self) -> None:
        """Replace every process that has ended or does not answer."""
        for rank, member in enumerate(self.members):
            if member.wedged or member.child.ended() is not None:
                member.close()
                self.members[rank] = Member(self.arena, rank, None, [], self.how)
                self.members[rank].begun()

    def send(self, rank: int, command: int, argument: int = 0) -> None:
        """Tell a process, and do not wait."""
        self.members[rank].send(COMMAND.pack(command, 0, argument, 0.0))

    def command(
        self, rank: int, command: int, argument: int = 0, clock: float = 0.0, worker: int = 0
    ) -> bool:
        """Tell a process, and wait until it answers; False if it has ended or has been ended.

        worker: the lane of the rank that it concerns.
        """
        member = self.members[rank]
        if member.wedged:
            return False
        member.send(COMMAND.pack(command, worker, argument, clock))
        deadline = self.deadline
        deadline.passed()
        woke = member.woke(deadline.left())
        if woke is None:
            self.expire(rank)
        return bool(woke)

    def expire(self, rank: int) -> None:
        """A limit has expired while this rank was awaited: take all stacks, then kill it."""
        member = self.members[rank]
        member.expired = self.deadline.expired()
        if not any(other.stacks for other in self.members):
            member.stacks = stacks([other.child for other in self.members])
        member.wedged = True
        member.child.stop(grace=0)

    def begin(self) -> None:
        """A new plan: what is printed from now on is its own."""
        for member in self.members:
            member.mark = os.fstat(member.child.log).st_size

    def printed(self, rank: int) -> str:
        """The end of what a rank has printed since `begin`."""
        member = self.members[rank]
        return member.child.printed(member.mark)

    def ending(self, rank: int) -> Ending:
        """How a process that did not answer has ended."""
        member = self.members[rank]
        member.wedged = True
        return member.child.ended(within=END_SECONDS) or member.child.stop(grace=0)

    def finish(self, size: int) -> None:
        """The plan is over: every process lets go of it, within its limit, or is replaced later."""
        waiting = []
        for rank in range(size):
            member = self.members[rank]
            if not member.wedged and member.child.ended() is None:
                self.send(rank, DONE)
                waiting.append(member)
        ends = now() + END_SECONDS
        for member in waiting:
            if not member.woke(ends - now()):
                member.wedged = True
                member.child.signal(signal.SIGKILL)

    def wedge(self) -> None:
        """A plan was given up: none of these processes is used again."""
        for member in self.members:
            member.wedged = True

    def close(self) -> None:
        """End every process and free the arena."""
        if self.owner != os.getpid():
            return
        for rank in range(len(self.members)):
            self.send(rank, EXIT)
        for member in self.members:
            member.close()
        self.arena.close()
        os.close(self.arena.fd)
        self.members.clear()


_warm: dict[str, Crew] = {}  # by how their processes start


def warm(ranks: int, how: str = "fork") -> Crew:
    """The crew that is kept, with room for so many ranks, whole. how: one of supervise.STARTS."""
    kept = _warm.get(how)
    if kept is not None and (kept.owner != os.getpid() or kept.arena.size < ranks):
        _end(how)
    if how in _warm:
        try:
            _warm[how].mend()
        except EngineError:  # the zygote was killed, and with it its children
            _end(how)
    if how not in _warm:
        if how == "fork":  # else each process imports what it runs by itself
            known = [module.__name__ for module in registry.modules()]
            zygote().preload(["harness.fabric.rank_process", *known])
        made = _warm[how] = Crew(max(ranks, ROOM if how == "fork" else 0), how)
        made.start()
    return _warm[how]


def cool() -> None:
    """End the crews that are kept."""
    for how in list(_warm):
        _end(how)


def _end(how: str) -> None:
    with contextlib.suppress(EngineError):
        _warm.pop(how).close()
