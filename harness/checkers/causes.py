"""Why a read came at the wrong time, as far as the record proves it: a row of the table of causes
and the lines of evidence for it.

A notify, or another put's signal, overtook a put when the reader waited on its cell and saw it, both
went from one rank to the reader, the put first, and no fence of that rank stands between them. Not
modelled: chains of notifies through third ranks; those are `in_flight` or `not_begun`.
"""

from __future__ import annotations

from harness.checkers.reads import Proof
from harness.checkers.wording import actor, elements
from harness.record import CHANGES, Event, Run

_SYNCHRONISES = frozenset(("wait", "sync", "barrier", "window"))


Cause = tuple[str, list[str], list[int]]


def cause_of(run: Run, proof: Proof) -> Cause:
    """The name of the cause, its evidence, and events to mark."""
    write = proof.write
    if write is None:
        return "never_written", [], []
    if proof.fetched >= 0:
        return "old_copy", [_last_wait(run, run.rank_of(proof.read), proof.read_at)], []
    if write.kind == "write_back":
        return "shared_line", [], []
    if proof.late:
        return _replaced(run, proof)
    reader, writer = run.rank_of(proof.read), run.rank_of(write)
    if write.kind == "land" and reader == writer:
        return "get_in_flight", [], []
    if not proof.in_flight:
        if reader == writer:
            return "", [], []
        return "not_begun", [_last_wait(run, reader, proof.read_at)], []
    if run.issue_of(write).kind == "store_issue" and reader != writer:
        return "unpublished", [_last_wait(run, reader, proof.read_at)], []
    found = _overtaken(run, proof, reader) or _met(run, proof, reader, writer)
    if found is not None:
        return found
    kind = "in_flight" if reader != writer else "own_in_flight"
    return kind, [_last_wait(run, reader, proof.read_at)], []


def _replaced(run: Run, proof: Proof) -> Cause:
    """What replaced the value that was due: a signal, another rank's write, or the writer's next one."""
    write = proof.write
    assert write is not None
    if type(write.value) is int:
        return "signal_over_data", [], []
    if proof.in_order:
        return "own_store", [], []
    lo = proof.lo if proof.lo >= 0 else max(proof.read.lo, write.lo)
    for index in range(proof.write_at - 1, -1, -1):
        before = run.events[index]
        if (
            before.kind in CHANGES and (before.window, before.peer) == (write.window, write.peer)
            and before.lo <= lo < before.hi
        ):
            if run.rank_of(before) == run.rank_of(write):
                break
            why = f"{actor(run, before)} had written the same place at event {index}"
            return "two_writers", [why], [index]
    return "reused", [], []


def _overtaken(run: Run, proof: Proof, reader: int) -> Cause | None:
    """The notify that the reader saw while the put before it was in flight."""
    assert proof.write is not None
    put = run.issue_of(proof.write)
    fences = [
        index for index, raw in enumerate(run.raw)
        if raw[0] == put.owner and raw[1] in ("fence", "quiet") and index > proof.issue_at
    ]
    for index in range(proof.read_at - 1, proof.issue_at, -1):
        event = run.events[index]
        if event.kind != "deliver" or type(event.value) is not int or event.peer != reader:
            continue
        signal = run.issue_of(event)
        issued = next(i for i, raw in enumerate(run.raw) if raw[7] == event.number)
        if signal.owner != put.owner or put.peer != reader or event.number < put.number:
            continue
        if any(proof.issue_at < fence < issued for fence in fences):
            continue
        if any(_saw(run.events[at], event) for at in range(index, proof.read_at)):
            why = (
                f"{actor(run, event)} was delivered at event {index}, ahead of {actor(run, put)}: "
                "no fence between them"
            )
            # A put_signal's own data comes before its signal, so the late put is another one.
            kind = "announced_by_another" if signal.kind == "signal" else "overtaken"
            return kind, [why], [issued, index]
    return None


def _saw(wait: Event, signal: Event) -> bool:
    return wait.kind == "wait" and (wait.window, wait.peer, wait.lo) == (
        signal.window, signal.peer, signal.lo
    )


def _met(run: Run, proof: Proof, reader: int, writer: int) -> Cause | None:
    """The sync at which the writer arrived after its issue and that the reader left before its
    read."""
    arrivals = [i for i, e in enumerate(run.events) if e.kind == "sync_arrive" and e.peer == writer]
    left = [
        i for i, e in enumerate(run.events) if e.kind in ("sync", "barrier") and e.peer == reader
    ]
    pairs = [
        pair
        for group in sorted({run.events[i].value or () for i in arrivals})
        for pair in zip(
            [i for i in arrivals if (run.events[i].value or ()) == group],
            [i for i in left if (run.events[i].value or ()) == group], strict=False,
        )
        if not group or {reader, writer} <= set(group)
    ]
    for arrived, gone in pairs:
        if proof.issue_at < arrived and gone < proof.read_at:
            event = run.events[arrived]
            why = f"{actor(run, event)}, event {arrived}, came with the operation in flight"
            return "met_in_flight", [why], [arrived]
    return None


def _brought(run: Run, wait: Event, at: int) -> str:
    """`, last changed by rank 1's notify #3 at …`."""
    for index in range(at - 1, -1, -1):
        event = run.events[index]
        if event.kind == "deliver" and type(event.value) is int and _saw(wait, event):
            return f", last changed by {actor(run, event)}"
    return ""


def _last_wait(run: Run, reader: int, before: int) -> str:
    """What the reader had waited for last."""
    for index in range(before - 1, -1, -1):
        event = run.events[index]
        if event.kind in _SYNCHRONISES and event.peer == reader:
            if event.kind != "wait":
                return f"the last thing that it waited for: {actor(run, event)}, event {index}"
            cell = elements(run, event.window, event.lo, event.hi)
            return (
                f"the last thing that it waited for: {actor(run, event)}, event {index}, which saw "
                f"{cell} = {event.value}{_brought(run, event, index)}"
            )
    return f"rank {reader} had waited for nothing before"
