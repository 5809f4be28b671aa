"""How checkers speak of ranks, events, memory and values: one wording for all of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from harness.diagnosis.table import likely
from harness.finding import Finding
from harness.record import CALLED, Blocked, Event, Run, Site, place, site_of

_FORMATS = {
    "float32": "f", "float64": "d", "float16": "e", "int8": "b", "uint8": "B", "int16": "h",
    "int32": "i", "int64": "q", "bool": "?",
}


def finding(
    checker: str, kind: str, rank: int, message: str, *, sites: Iterable[Site] = (),
    evidence: Iterable[str] = (), events: Iterable[int] = (), traceback: str = "",
    consequences: Iterable[str] = (), because: str = "", graph: Iterable[str] = (),
) -> Finding:
    """A finding with sorted sites and the table's likely cause and remedy.

    because: a row of the table of causes that the record proves.
    """
    cause, remedy = likely(f"{checker}/{kind}", because)
    return Finding(
        checker=checker, kind=kind, rank=rank, message=message, sites=tuple(sorted(set(sites))),
        evidence=tuple(evidence), cause=cause, remedy=remedy, events=tuple(sorted(set(events))),
        traceback=traceback, consequences=tuple(consequences), graph=tuple(graph),
    )


def ranks(numbers: Iterable[int]) -> str:
    """`rank 1`, `ranks 0 and 2`, `ranks 0, 1 and 3`, or `no rank`."""
    words = [str(number) for number in numbers]
    if not words:
        return "no rank"
    if len(words) == 1:
        return f"rank {words[0]}"
    return f"ranks {', '.join(words[:-1])} and {words[-1]}"


def times(count: int) -> str:
    """`once`, `twice`, `3 times`."""
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def elements(run: Run, window: int, lo: int, hi: int) -> str:
    """`'name'[3]` or `'name'[0:4]`: the elements of a memory that bytes lo..hi are."""
    known = run.names[window]
    size = known.itemsize
    if lo % size or hi % size:
        return f"bytes {lo}..{hi} of {known.name!r}"
    first, end = lo // size, hi // size
    inside = str(first) if end == first + 1 else f"{first}:{end}"
    return f"{known.name!r}[{inside}]"


def decoded(data: bytes, dtype: str) -> list[Any]:
    """The elements in `data`, or [] for a dtype that struct does not know (bfloat16)."""
    code = _FORMATS.get(dtype)
    if code is None or len(data) % struct.calcsize(code):
        return []
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


def encoded(value: float, dtype: str) -> bytes:
    """The bytes of one element, or b"" where struct does not know the dtype or it does not fit."""
    code = _FORMATS.get(dtype)
    try:
        return struct.pack(f"<{code}", value if code in ("f", "d", "e") else int(value))
    except (struct.error, OverflowError, ValueError):
        return b""


def of_rank(run: Run, event: Event) -> str:
    """` of rank 1` where the memory has a part for each rank, else nothing."""
    return f" of rank {event.peer}" if run.names[event.window].kind == "window" else ""


def shown(values: Sequence[Any]) -> str:
    """Up to four values."""
    inside = ", ".join(f"{value:g}" if isinstance(value, float) else str(value)
                       for value in values[:4])
    return f"[{inside}{', …' if len(values) > 4 else ''}]"


def called(run: Run, event: Event) -> str:
    """The operation as the program called it: `put #3` for one-sided ones, else `load`."""
    issue = run.issue_of(event)
    name = CALLED.get(issue.kind, issue.kind)
    return f"{name} #{issue.number}" if issue.number >= 0 else name


def actor(run: Run, event: Event) -> str:
    """`rank 1's put #3 at file.py:12 in program`."""
    who = run.lane_name(run.lane_of(event))
    return f"{who}'s {called(run, event)} at {place(event.code, event.lasti)}"


def blocked_site(blocked: Blocked) -> Site:
    """The user's call in which a lane is blocked."""
    return site_of(blocked.code, blocked.lasti, blocked.kind)


def unreturned(run: Run) -> list[int]:
    """Ranks whose programs did not return: blocked, raised, dead, lost or stopped."""
    return [rank for rank, result in enumerate(run.results) if result is None]


def cell_of(run: Run, blocked: Blocked) -> str:
    """`'name'[at] = value, awaited >= expected`."""
    name = run.names[blocked.window].name
    return (
        f"{name!r}[{blocked.at}] = {blocked.value}, awaited {blocked.compare} {blocked.expected}"
    )


def last_event(run: Run, lane: int) -> tuple[int, Event] | None:
    """The last thing that a lane did, with its index."""
    for index in range(len(run.raw) - 1, -1, -1):
        if run.raw[index][0] == lane:
            return index, Event._make(run.raw[index])
    return None
