"""Whether memory lives, and keeps its content, as long as an operation uses it.

use_after_free: an access through a freed window, refused at its entry. freed_in_flight: a
delivery, or another rank's read, on a window that its owner has freed. overwritten_while_read: the
owner stores over bytes that a get in flight has still to read, or over the source of a put_nbi
before its delivery. tensor_written_in_flight, tensor_read_in_flight: a plain tensor was touched while
a put_nbi or get_nbi used it; fabric/tensors.py says what is seen.

Not modelled: puts of third ranks over the same bytes (the races checker's), polls of one integer
by get.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.failures import first_failure
from harness.checkers.wording import actor, elements, finding
from harness.finding import Finding
from harness.record import DELIVERIES, WRITTEN, Event, Run, place

_GETS = frozenset(("get_issue", "get_nbi"))
_TOUCHES = DELIVERIES | {"remote_load"}
_POLLED_BYTES_MAX = 8


class Lifetime:
    """Kinds: use_after_free, freed_in_flight, overwritten_while_read, tensor_written_in_flight,
    tensor_read_in_flight."""

    name = "lifetime"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding, the earliest in the order of the checks above."""
        if run.failures:
            yield from first_failure(run, self.name)
        kinds = {raw[1] for raw in run.raw}
        found = self._freed(run) if "free" in kinds else None
        if found is None and "store" in kinds and kinds & _GETS:
            found = self._overwritten(run)
        if found is None and "store" in kinds and "put_nbi" in kinds:
            found = self._source(run)
        if found is not None:
            yield found
        elif run.touched and not run.torch_calls:  # else torch_buffers.py
            yield _of_tensor(run)

    def _freed(self, run: Run) -> Finding | None:
        freed: dict[tuple[int, int], int] = {}
        for index, raw in enumerate(run.raw):
            if raw[1] == "free":
                freed[raw[2], raw[3]] = index
            elif freed and raw[1] in _TOUCHES and (raw[2], raw[3]) in freed:
                return self._touched(run, freed[raw[2], raw[3]], index)
        return None

    def _touched(self, run: Run, freed: int, index: int) -> Finding:
        free, event = run.events[freed], run.events[index]
        name = elements(run, event.window, event.lo, event.hi)
        issue = run.issue_of(event)
        return finding(
            self.name, "freed_in_flight", event.peer,
            f"rank {event.peer} freed {run.names[event.window].name!r} while "
            f"{actor(run, issue)} was still to reach it",
            sites=(run.site(free), run.site(event)),
            evidence=(
                f"rank {event.peer} freed it in {actor(run, free)}, event {freed}",
                f"{actor(run, issue)} touched {name} on rank {event.peer} at event {index}",
                "missing edge: the operation's completion before the free",
            ),
            events=(freed, index),
        )

    def _overwritten(self, run: Run) -> Finding | None:
        open_gets: dict[int, tuple[int, Event]] = {}
        stores: dict[int, tuple[int, Event]] = {}  # by operation: a store over what it will read
        for index, raw in enumerate(run.raw):
            if raw[1] in _GETS:
                get = Event._make(raw)
                if not _polled(run, get):
                    open_gets[get.number] = (index, get)
            elif raw[1] == "store" and open_gets:
                store = Event._make(raw)
                for number, (_, get) in open_gets.items():
                    if _same_bytes(get, store):
                        stores.setdefault(number, (index, store))
            elif raw[1] == "read" and raw[7] in open_gets:
                begun, get = open_gets.pop(raw[7])
                if raw[7] in stores:
                    return self._reuse(run, get, begun, *stores[raw[7]], index)
        return None

    def _reuse(
        self, run: Run, reader: Event, begun: int, at: int, store: Event, ended: int
    ) -> Finding:
        memory = elements(run, store.window, store.lo, store.hi)
        owner = run.rank_of(store)
        return finding(
            self.name, "overwritten_while_read", owner,
            f"{actor(run, store)} overwrote {memory} while {actor(run, reader)} had still to "
            "read it",
            sites=(run.site(store), run.site(reader)),
            evidence=(
                f"{actor(run, reader)}: issued at event {begun}, read at event {ended}",
                f"{actor(run, store)}: wrote {memory} at event {at}, between the two",
                "missing edge: the read before the store",
            ),
            events=(begun, at, ended),
        )

    def _source(self, run: Run) -> Finding | None:
        """A put_nbi that delivered what a later store of its own rank had put into its source."""
        issued: dict[int, tuple[int, Event]] = {}
        for index, event in enumerate(run.events):
            if event.kind == "put_nbi" and isinstance(event.value, bytes):  # not an atomic one
                issued[event.number] = (index, event)
            elif event.kind in WRITTEN and event.number in issued:
                begun, put = issued[event.number]
                if not isinstance(event.value, bytes) or event.value == _piece(put, event):
                    continue
                for at in range(begun + 1, index):
                    store = run.events[at]
                    if (
                        store.kind == "store" and run.rank_of(store) == run.rank_of(put)
                        and isinstance(store.value, bytes) and store.value
                        and _whole(store) and store.value in event.value
                        and store.value not in put.value
                    ):
                        return self._reuse(run, put, begun, at, store, index)
        return None


def _of_tensor(run: Run) -> Finding:
    """The first write to a plain tensor in flight, else the first read."""
    first = min(run.touched, key=lambda t: (not t.writes, t.at))
    seen = [t for t in run.touched if t.number == first.number and t.writes == first.writes]
    lines = [t for t in seen if t.by]
    begun = next(i for i, raw in enumerate(run.raw) if raw[7] == first.number)
    issue = run.events[begun]
    rank = run.rank_of(issue)
    version = f"its version counter went from {first.before} to {first.after}"
    if first.before < 0:
        version = "it has no version counter (inference mode)"
    elif first.before == first.after:
        version = (
            "its version counter stands still: not torch, but numpy, native code or another operation "
            "in flight wrote it"
        )
    deed = "was written" if first.writes else "was read"
    needed = "fills" if issue.kind == "get_nbi" else "reads"
    return finding(
        Lifetime.name, "tensor_written_in_flight" if first.writes else "tensor_read_in_flight", rank,
        f"the tensor that {actor(run, issue)} {needed} {deed} {first.stage}",
        sites=(run.site(issue),),
        evidence=(
            f"{actor(run, issue)}, event {begun}, uses the tensor until quiet; it {deed} by event "
            f"{first.at}",
            *([version] if first.writes and not first.by else []),
            *(f"{run.lane_name(t.lane)} called {t.by} at {place(t.code, t.lasti)}" for t in lines[:3]),
        ),
        events=(begun,),
    )


def _polled(run: Run, event: Event) -> bool:
    """Whether the get looks like a poll of one integer, which its owner may well change."""
    small = event.hi - event.lo <= _POLLED_BYTES_MAX
    return small and run.names[event.window].dtype in ("int32", "int64", "uint8")


def _same_bytes(get: Event, store: Event) -> bool:
    return (
        store.window == get.window and store.peer == get.peer
        and store.lo < get.hi and get.lo < store.hi
    )


def _piece(put: Event, delivery: Event) -> bytes | None:
    """What the put was to deliver there, as far as the record tells."""
    if (delivery.lo, delivery.hi) == (put.lo, put.hi):
        return bytes(put.value)
    if not _whole(put) or not _whole(delivery):
        return bytes(delivery.value)  # only digests: nothing to compare
    return bytes(put.value[delivery.lo - put.lo : delivery.hi - put.lo])


def _whole(event: Event) -> bool:
    return len(event.value) == event.hi - event.lo
