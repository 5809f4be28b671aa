"""The record of one run: events in order, results, exceptions, final memory, the reference.

An event is a plain tuple while the run lasts (it is the hottest allocation of the engine) and a named
one for whoever reads it. `owner` is a lane's number for what a program does, `lanes + number` for
what the delivery of one-sided operation `number` does. `lo` and `hi` are payload byte offsets.
`value` is what was written or read: the bytes themselves up to 256 of them, their 16-byte BLAKE2b
digest beyond; ("add", bytes) for the issue of an atomic put, the amount or ("set", value) for that
of a notify, and the cell's new value for its delivery; the path, for operations of a disk.

Run identity (DESIGN.md): SHA-256 over (owner, kind, window, peer, byte range) in order. No clock,
line or path is in it. The values have a second digest of their own.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from harness.frontends.pypto.dfx import Note
    from harness.frontends.torch_distributed.calls import Call as TorchCall
    from harness.plan import Fault

VALUE_BYTES_MAX = 256
# Events that are not named after the call that made them.
CALLED = {
    "window_arrive": "window", "sync_arrive": "sync", "get_issue": "get", "signal": "put_signal",
    "join_arrive": "join", "expired": "wait", "store_issue": "store",
}
DELIVERIES = frozenset(("deliver", "deliver_part", "write_back", "read", "read_part", "land"))
OF_WORKS = frozenset(("complete", "wait_work", "expired"))  # may name the work they are about
# At the target of a put or notify; a write_back is of what else is in a 64-byte line.
WRITTEN = frozenset(("deliver", "deliver_part", "write_back"))
CHANGES = WRITTEN | {"store", "land"}  # everything that changes memory
FETCHED = frozenset(("read", "read_part"))  # at the target of a get

# A running event: (owner, kind, window, peer, lo, hi, value, number, code, lasti)
RawEvent = tuple[int, str, int, int, int, int, Any, int, CodeType | None, int]

# A collective call: (operation, what, code, lasti, group or (), lane of the rank)
Call = tuple[str, str, CodeType | None, int, tuple[int, ...], int]


class Event(NamedTuple):
    """One thing that happened. `number` is the one-sided operation it belongs to, or -1."""

    owner: int
    kind: str
    window: int
    peer: int
    lo: int
    hi: int
    value: Any
    number: int
    code: CodeType | None
    lasti: int


class Site(msgspec.Struct, frozen=True, order=True):
    """A place in a program that survives edits elsewhere: function, operation, ordinal in it."""

    function: str
    operation: str
    ordinal: int = 0

    def __str__(self) -> str:
        return f"{self.function}:{self.operation}#{self.ordinal}"


@functools.lru_cache(maxsize=4096)
def _ordinal(code: CodeType, lasti: int, operation: str) -> tuple[str, int]:
    """The operation's name as called at `lasti`, and which call of that name in `code` it is."""
    named = [
        instruction for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR")
    ]
    before = [str(instruction.argval) for instruction in named if instruction.offset <= lasti]
    if operation in ("quiet", "sync") and operation not in before and "barrier" in before:
        operation = "barrier"  # which is the two of them
    if operation not in before:
        return operation, 0
    # Python compiles a loop's condition twice: calls are told apart by their place in the source.
    starts = [(i.offset, _start(i)) for i in named if i.argval == operation]
    ordered = sorted({start for _, start in starts})
    return operation, ordered.index([start for offset, start in starts if offset <= lasti][-1])


def _start(instruction: dis.Instruction) -> tuple[int, int]:
    """Line and column where the instruction's attribute ends, which no other attribute shares."""
    at = instruction.positions
    assert at is not None, "every instruction has positions from Python 3.11 on"
    return at.end_lineno or 0, at.end_col_offset or 0


def site_of(code: CodeType | None, lasti: int, operation: str) -> Site:
    """The Site of a call; `code` is None for what the harness itself does."""
    if code is None:
        return Site("harness", operation)
    called, ordinal = _ordinal(code, lasti, operation)
    return Site(code.co_qualname, called, ordinal)


@functools.lru_cache(maxsize=4096)
def _line(code: CodeType, lasti: int) -> int:
    """The source line of the instruction at `lasti`."""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            return number
    return line


def place(code: CodeType | None, lasti: int) -> str:
    """`folder/file.py:line in function`, relative where that is shorter; never used in identities."""
    if code is None:
        return "harness"
    path = code.co_filename
    for root in (os.getcwd(), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))):
        if path.startswith(root + os.sep):
            path = path[len(root) + 1 :]
            break
    return f"{path}:{_line(code, lasti)} in {code.co_name}"


@dataclass(slots=True)
class WindowRecord:
    """What a checker may know of one window, buffer or host tensor after the run."""

    number: int
    name: str
    kind: str  # "window", "buffer", "host tensor" or "tensor" (a plain one that was in flight)
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    itemsize: int
    regions: dict[int, Any]  # the memory by rank, as the run left it
    guards_broken: list[tuple[int, int]]  # (rank, first broken byte relative to the payload)

    def final(self, rank: int) -> bytes | None:
        """The payload of one rank's part after the run; None where that rank has none."""
        region = self.regions.get(rank)
        return None if region is None else region.payload()


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What a blocked lane would do next, if what it waits for had come (fabric/afterwards.py).

    operations: by name. notifies: cells as (window, rank, byte offset).
    arrives: the rendezvous it would come to, as (sync_arrive or window_arrive, group)."""

    operations: frozenset[str] = frozenset()
    notifies: frozenset[tuple[int, int, int]] = frozenset()
    arrives: frozenset[tuple[str, tuple[int, ...]]] = frozenset()


@dataclass(frozen=True, slots=True)
class Touched:
    """A plain tensor was touched while an operation in flight used it (fabric/tensors.py).

    number: the operation. at: events so far. stage: `before quiet`. before, after: version counters.
    writes: it was written, else read. by, lane, code, lasti: the torch operation that did it, the lane
    that was running, and the user's line, where they are known.
    """

    number: int
    at: int
    stage: str
    before: int
    after: int
    writes: bool
    by: str = ""
    lane: int = -1
    code: CodeType | None = None
    lasti: int = -1


@dataclass(slots=True)
class Blocked:
    """A lane that never ended: what it waits for, and where."""

    lane: int
    rank: int
    # wait, quiet, sync, window, get, join, work (detail: of what, and its number), lock (detail: how it
    # waits, in `Queue.get of q`)
    kind: str
    window: int
    at: int  # element
    expected: int
    value: int
    compare: str
    code: CodeType | None
    lasti: int
    detail: str = ""
    lo: int = 0  # byte offset of a cell in its window, views resolved
    afterwards: Afterwards = Afterwards()
    group: tuple[int, ...] = ()  # of a rendezvous; () = all ranks
    holder: int = -1  # of a lock: the lane that has it; -1 if that is not known


@dataclass(frozen=True, slots=True)
class Starved:
    """What a device of a blocked world had ready and gave no core to.

    holders: lane of the rank and name of each task that holds one. ready: name, code and instruction.
    """

    rank: int
    cores: int
    holders: tuple[tuple[int, str], ...]
    ready: tuple[tuple[str, CodeType | None, int], ...]


@dataclass(slots=True)
class Failure:
    """An exception that ended a lane (or the host program: lane -1), at its place in the order."""

    lane: int
    rank: int
    clock: int
    error: BaseException
    traceback: str
    code: CodeType | None
    lasti: int
    operation: str


@dataclass(slots=True)
class Run:
    """A finished run. Checkers read it and nothing else."""

    ranks: int
    lanes: list[tuple[int, int]]  # rank and worker of each lane, by the lane's number
    raw: list[RawEvent]
    memory: Callable[[], list[WindowRecord]]  # asked once, by whoever looks at `names`
    guards_intact: bool
    results: list[Any]  # by rank: what its dispatches returned; None if it did not end
    observed: Any
    expected: Any
    failures: list[Failure]
    blocked: list[Blocked]
    dead: list[int]
    peers_lost: list[int]
    fired: list[int]  # how often each fault of the plan fired, by its index
    deviations_applied: int
    calls: list[list[Call]]  # collective calls by rank
    points: int  # contested points
    operations: int  # issued one-sided operations
    ended: str  # "returned", "blocked", "livelock" or "overrun"
    livelock: list[Blocked] = field(default_factory=list)
    starved: list[Starved] = field(default_factory=list)
    tolerance: float = 0.0
    seen: list[int] = field(default_factory=list)  # operations that matched each fault of the plan
    private: list[str] = field(default_factory=list)  # host tensors seen as private copies
    # What an event has no room for. awaited: by index of a wait, its value and whether it is >= (or
    # ==). sources: by number of a put from a window or buffer, that memory and the byte offset in it.
    awaited: dict[int, tuple[int, bool]] = field(default_factory=dict)
    sources: dict[int, tuple[int, int]] = field(default_factory=dict)
    fetched: dict[int, int] = field(default_factory=dict)  # by a load that saw an old copy: its fetch
    touched: list[Touched] = field(default_factory=list)  # plain tensors in flight that were touched
    _names: list[WindowRecord] | None = None
    _events: list[Event] | None = None
    _issued: dict[int, Event] | None = None
    dispatched: list[list[int]] = field(default_factory=list)  # by lane: where each dispatch began
    programs: list[Any] = field(default_factory=list)  # by dispatch, what each rank ran
    faults: tuple[Fault, ...] = ()  # of the plan, by index
    printed: list[str] = field(default_factory=list)  # by rank, the end of what its process printed
    by_main: list[str] = field(default_factory=list)  # what main threads printed, where there are others
    # Of a torch.distributed program. calls: by rank, in the order in which it made them. waits: by number
    # of a work, where the user waited for it (wait, or its future) or saw that it was complete.
    torch_calls: list[list[TorchCall]] = field(default_factory=list)
    torch_waits: dict[int, tuple[CodeType | None, int]] = field(default_factory=dict)
    notes: list[list[Note]] = field(default_factory=list)  # of a pld program: what each device did
    # What each rank came to, as text, where the scenario says so; and in the plan's default run.
    came_to: list[str] = field(default_factory=list)
    usually: list[str] | None = None
    threads: dict[int, str] = field(default_factory=dict)  # by lane: the name of the thread that it is
    raised: dict[int, str] = field(default_factory=dict)  # by lane: what a thread raised, and where

    @property
    def names(self) -> list[WindowRecord]:
        """Every window, buffer and host tensor, by number."""
        if self._names is None:
            self._names = self.memory()
        return self._names

    @property
    def events(self) -> Sequence[Event]:
        """The events, named."""
        if self._events is None:
            self._events = [Event._make(raw) for raw in self.raw]
        return self._events

    def lane_of(self, event: Event) -> int:
        """The number of the lane on whose behalf the event happened."""
        return event.owner if event.owner < len(self.lanes) else self.issue_of(event).owner

    def rank_of(self, event: Event) -> int:
        """The rank on whose behalf the event happened."""
        return self.lanes[self.lane_of(event)][0]

    def lane_name(self, lane: int) -> str:
        """`rank 3`, or `rank 3 lane 1` where the rank has several."""
        rank, worker = self.lanes[lane]
        if self.threads:
            thread = self.threads.get(lane)
            return f"rank {rank}" if thread is None else f"rank {rank}, thread {thread!r}"
        several = len(self.lanes) > self.ranks and (rank, 1) in self.lanes
        return f"rank {rank} lane {worker}" if several else f"rank {rank}"

    def lanes_of(self, rank: int) -> list[int]:
        """The numbers of a rank's lanes."""
        return [lane for lane, (owner, _) in enumerate(self.lanes) if owner == rank]

    def issue_of(self, event: Event) -> Event:
        """The event in which a delivery's operation was issued; any other event itself."""
        late = event.kind in DELIVERIES or (event.number >= 0 and event.kind in OF_WORKS)
        return self.issue(event.number) if late else event

    def issue(self, number: int) -> Event:
        """The event in which operation `number` was issued."""
        if self._issued is None:
            self._issued = {
                e.number: e for e in self.events
                if e.number >= 0 and e.owner < len(self.lanes) and e.kind not in OF_WORKS
            }
        return self._issued[number]

    def undelivered(self) -> list[tuple[int, Event]]:
        """The issues of one-sided operations that were never delivered (a get: never landed)."""
        done = {raw[7] for raw in self.raw if raw[1] in ("deliver", "land", *OF_WORKS)}
        return [
            (index, event) for index, event in enumerate(self.events)
            if event.number >= 0 and event.number not in done and event.owner < len(self.lanes)
        ]

    def site(self, event: Event) -> Site:
        """The user's call behind an event; a delivery's is the call that issued the operation."""
        kind = self.issue_of(event).kind
        called = CALLED.get(kind, kind).removeprefix("disk_")
        return site_of(event.code, event.lasti, called)

    def identity(self) -> str:
        """SHA-256 over the order of events, in hex."""
        digest = hashlib.sha256()
        digest.update(
            "\n".join(
                [f"{e[0]},{e[1]},{e[2]},{e[3]},{e[4]},{e[5]}" for e in self.raw]
            ).encode()
        )
        return digest.hexdigest()

    def value_identity(self) -> str:
        """SHA-256 over the values that the events carried, in hex."""
        digest = hashlib.sha256()
        for event in self.raw:
            value = event[6]
            digest.update(value if isinstance(value, bytes) else repr(value).encode())
            digest.update(b"\n")
        return digest.hexdigest()
