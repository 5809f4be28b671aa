"""The four troubleshooting stories of a KV store: what their modules share.

Each story is a scenario in which everything is right, and its causes are mutants of the client's code
or of the world around the store (`rankfault hunt store.story_lookup_misses --bug never_committed`). The
host program keeps what somebody at the console could see (paths, file names, ids, statuses, workers,
bytes); from that alone, not from what was planted, the diagnosis tells the causes apart.

The store is the embedded one on a simulated disk, its workers on `Workers`: jobs run, one after the
other, while somebody waits, in virtual time. Not modelled: workers that overlap.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from greenlet import getcurrent, greenlet

from harness import Finding, Rank, Run, SimulatedDisk, Site, likely
from systems.store import UcmConnectorFactory

PATH = "/kv"
EPOCH = 1e9


class Symptom(NamedTuple):
    """What a user sees, what it follows from, and the row of the table of causes that this proves."""

    kind: str
    rank: int
    message: str
    evidence: tuple[str, ...]
    because: str


@runtime_checkable
class Facts(Protocol):
    """What a story's host program returns."""

    def symptoms(self) -> Iterable[Symptom]:
        """In the order of ranks; nothing where all is well."""
        ...


class Stories:
    """The checker `store` of the stories."""

    name = "store"

    def check(self, run: Run) -> Iterator[Finding]:
        """The first symptom; the others are its consequences."""
        found = list(run.observed.symptoms()) if isinstance(run.observed, Facts) else []
        if not found:
            return
        first, *others = found
        cause, remedy = likely(f"{self.name}/{first.kind}", first.because)
        yield Finding(
            checker=self.name, kind=first.kind, rank=first.rank, message=first.message, cause=cause,
            remedy=remedy, sites=(Site("story", first.because),), evidence=first.evidence,
            consequences=tuple(f"after it: {one.message}" for one in others),
        )


def idle(rank: Rank) -> int:
    """The ranks have no part in it: the host program is every client in turn."""
    return rank.index


def block_ids(prompt: str, count: int) -> list[bytes]:
    """Ids as a prefix cache makes them: each the MD5 digest of the one before and of its own tokens."""
    ids: list[bytes] = []
    for number in range(count):
        before = ids[-1] if ids else b""
        ids.append(hashlib.md5(before + f"{prompt}:{number}".encode()).digest())
    return ids


@contextmanager
def logged() -> Iterator[list[str]]:
    """The warnings that the store logs meanwhile, instead of on the screen."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ucm")
    spread, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = spread


class Workers:
    """The store's executor and clock: jobs run while somebody waits, time passes when nothing else can.

    alive: workers that still take jobs. taken, ended: jobs so far. inside: what a job that never returned
    was doing, and since when (virtual seconds).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.alive = 1
        self.taken = 0
        self.ended = 0
        self.jobs: list[Callable[[], None]] = []
        self.inside: tuple[str, float] | None = None
        self._stuck: list[greenlet] = []

    def now(self) -> float:
        """Virtual seconds."""
        return self.seconds

    def time(self) -> float:
        """Virtual seconds since the epoch."""
        return EPOCH + self.seconds

    def event(self) -> _Event:
        """What the store waits on."""
        return _Event(self)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job."""
        self.jobs.append(job)

    def step(self) -> bool:
        """Run the next job, to its end or until it hangs; whether there was one to run."""
        if not self.jobs or not self.alive:
            return False
        job = self.jobs.pop(0)
        self.taken += 1
        run = greenlet(job)
        run.switch()
        if run.dead:
            self.ended += 1
        else:
            self.alive -= 1
            self._stuck.append(run)
        return True

    def hang(self, what: str) -> None:
        """Called within a job: it never goes on."""
        self.inside = (what, self.seconds)
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()

    def close(self) -> None:
        """Run what can be run, and give up what hangs."""
        while self.step():
            pass
        for one in self._stuck:
            one.throw()
        self._stuck.clear()


class _Event:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None) -> bool:
        while not self._set and self._workers.step():
            pass
        if not self._set and timeout is not None:
            self._workers.seconds += timeout
        return self._set


def opened(disk: SimulatedDisk, ports: Workers, path: str = PATH, **config: Any) -> Any:
    """The embedded store, its Posix stage alone."""
    return UcmConnectorFactory.create_connector(
        "UcmPosixStore", {"storage_path": path, **config}, disk=disk, executor=ports, clock=ports
    )
