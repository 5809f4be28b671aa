"""The one place where faults rewrite operations.

An operation is offered to the plan's faults once, before its entry checks. A fault sees the operation
as a value (`Operation`) and answers with one of

    an Operation          perform this instead (the same object: nothing happens)
    Drop()                perform nothing; an operation that returns a value cannot be dropped
    Twice()               perform it twice
    DeferAfter("wait")    perform it after the next operation of that kind of this lane
    Die()                 the rank dies here, before the operation
    Raise(error)          the operation raises
    Strike(deed)          do something to the rank's real process, then perform the operation

Programs without faults never come here: the check is one attribute of the rank.
Host operations (`alloc`, `prepare`, `dispatch`, `bind`) pass through the same door with the logical
rank they concern, or -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import EngineError, RankDied
from harness.plan import EVERY, Fault

RETURNS_VALUE = frozenset((
    "load", "remote_load", "window", "buffer", "view", "alloc", "bind", "disk_open", "disk_pread",
    "disk_listdir", "disk_exists", "disk_stat", "disk_free_bytes", "launch",
))


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a rank or host program, before its checks. `args` are its named arguments."""

    kind: str
    rank: int
    size: int
    args: dict[str, Any] = field(hash=False)
    lane: int = 0

    def with_args(self, **changes: Any) -> Operation:
        """The same operation with some arguments replaced."""
        return Operation(self.kind, self.rank, self.size, {**self.args, **changes}, self.lane)


@dataclass(frozen=True, slots=True)
class Drop:
    """Perform nothing."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Perform the operation twice."""


@dataclass(frozen=True, slots=True)
class DeferAfter:
    """Perform the operation after the next one of `kind` of this lane (at its end, if none comes)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Die:
    """Kill the rank before the operation."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise `error` instead of performing the operation."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Strike:
    """Call `deed` in the rank's real process (it may end it), then perform the operation."""

    deed: Callable[[], None]


class Interposer:
    """The plan's faults with their counters; one for a run.

    `fired[i]` counts how often fault i changed something; `on_fire` tells the record about it.
    real: the rank has a process of its own, which a Strike may hit.
    """

    def __init__(
        self, faults: Sequence[Fault], on_fire: Callable[[int, Operation], None], *, real: bool = False
    ) -> None:
        self._real = real
        self._faults = faults
        self._by_rank: dict[int, list[tuple[int, Fault]]] = {}
        self.seen = [0] * len(faults)
        self._counts: dict[tuple[int, int], int] = {}  # matching operations by fault and rank
        self._on_fire = on_fire
        self._deferred: dict[tuple[int, int], list[tuple[str, Callable[[], Any]]]] = {}
        self.fired = [0] * len(faults)

    def __bool__(self) -> bool:
        return bool(self._faults)

    def perform(self, op: Operation, body: Callable[..., Any]) -> Any:
        """`body(**args)` as the faults want it; returns what the (last) call returned."""
        action: Any = op
        for index, fault in self._by_rank.get(op.rank) or self._looking_at(op.rank):
            if not fault.matches(op):
                continue
            self.seen[index] += 1
            nth = self._counts.get((index, op.rank), 0)
            self._counts[index, op.rank] = nth + 1
            if fault.nth not in (EVERY, nth):
                continue
            answer = fault.rewrite(op)
            if answer is op:
                continue
            self.fired[index] += 1
            self._on_fire(index, op)
            action = answer
            if isinstance(answer, Operation):
                op = answer
                continue
            break
        result = self._act(action, op, body)
        if not isinstance(action, Drop | DeferAfter):
            self._run_deferred(op)
        return result

    def _looking_at(self, rank: int) -> list[tuple[int, Fault]]:
        """The faults that look at a rank's operations (the host's: all), in the plan's order."""
        found = self._by_rank[rank] = [
            (index, fault) for index, fault in enumerate(self._faults)
            if rank < 0 or fault.rank in (EVERY, rank)
        ]
        return found

    def _act(self, action: Any, op: Operation, body: Callable[..., Any]) -> Any:
        if isinstance(action, Operation):
            return body(**action.args)
        if isinstance(action, Twice):
            body(**op.args)
            return body(**op.args)
        if isinstance(action, Die):
            raise RankDied
        if isinstance(action, Raise):
            raise action.error
        if isinstance(action, Strike):
            if not self._real:
                raise EngineError("this rank has no process of its own that a fault could hit")
            action.deed()
            return body(**op.args)
        if op.kind in RETURNS_VALUE:
            raise EngineError(f"a {op.kind} returns a value: a fault cannot drop or defer it")
        if isinstance(action, DeferAfter):
            deferred = self._deferred.setdefault((op.rank, op.lane), [])
            deferred.append((action.kind, lambda: body(**op.args)))
        return None

    def _run_deferred(self, op: Operation) -> None:
        lane = op.rank, op.lane
        waiting = self._deferred.get(lane)
        if not waiting:
            return
        due = [entry for entry in waiting if entry[0] == op.kind]
        if due:
            self._deferred[lane] = [entry for entry in waiting if entry[0] != op.kind]
            for _, call in due:
                call()

    def at_end(self, rank: int, lane: int = 0) -> None:
        """Perform what is still deferred when the lane's program has returned."""
        for _, call in self._deferred.pop((rank, lane), []):
            call()


class DeadRank(Interposer):
    """What a dead rank's operations meet: they do nothing, and the rank stays dead."""

    def __init__(self) -> None:
        super().__init__((), lambda index, op: None)

    def __bool__(self) -> bool:
        return True

    def perform(self, op: Operation, body: Callable[..., Any]) -> Any:
        """Raises RankDied."""
        raise RankDied
