"""Whether the tensors of an asynchronous call of torch.distributed are left alone, and it is waited for.

changed_in_flight: a tensor was written between an asynchronous call and its wait. read_in_flight: its
result was read there (fabric/tensors.py says what is seen of both). overlapping_in_flight: two calls of
one rank were in flight over the same bytes, which at least one of them writes. dropped_handle: an
asynchronous call was never waited for, so that nothing says when its tensors may be used.

A wait is wait(), a wait on its future, or is_completed() that said yes. A dropped barrier or message
counts too: nobody learns whether it arrived; the result of a functional collective that nobody uses does
not. In a run that did not end well, or in which a rank died, a
dropped handle is a consequence, and no finding. A handle that stands for several calls (coalesced) is
waited for with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.checkers.torch_matching import NAME, call_site, where
from harness.checkers.wording import finding
from harness.finding import Finding
from harness.frontends.torch_distributed.calls import FAMILY, P2P, REDUCING, ROOTED, Call
from harness.record import Run, place

_OWN = ("c10d.", "_c10d_functional", "_dtensor.")
_KINDS = frozenset((*FAMILY, *FAMILY.values(), *ROOTED, *REDUCING, *P2P))


def buffers(run: Run) -> Iterator[Finding]:
    """What was touched in flight, then what overlaps, then what was never waited for."""
    calls = {call.number: call for made in run.torch_calls for call in made if call.number >= 0}
    twice = list(_overlapping(run))
    yield from _touched(run, calls, twice) or twice
    if run.ended == "returned" and not run.failures and not run.dead:
        yield from _dropped(run)


def waited(run: Run) -> set[int]:
    """The numbers of the calls that somebody waited for."""
    return set(run.torch_waits).union(
        raw[7] for raw in run.raw
        if raw[1] == "wait_work" or (raw[1] == "is_completed" and raw[6] == b"\x01")
    )


def _touched(run: Run, calls: dict[int, Call], twice: list[Finding]) -> list[Finding]:
    """The first write to a tensor in flight, else the first read; by other than torch.distributed's own
    operations, and by other than calls where these are found by their memory."""
    known = [
        touched for touched in run.touched
        if touched.number in calls and not touched.by.startswith(_OWN)
        and not (twice and touched.by in _KINDS)
    ]
    if not known:
        return []
    first = min(known, key=lambda touched: (not touched.writes, touched.at))
    call = calls[first.number]
    kind, deed = ("changed_in_flight", "changed") if first.writes else ("read_in_flight", "read")
    lines = [
        f"{run.lane_name(t.lane)} called {t.by} at {place(t.code, t.lasti)}"
        for t in known if t.by and t.number == first.number and t.writes == first.writes
    ]
    return [finding(
        NAME, kind, call.rank,
        f"the tensor of rank {call.rank}'s {where(call)} was {deed} before the call was complete"
        + (f", at {place(first.code, first.lasti)}" if first.code is not None else ""),
        sites=(call_site(call),),
        evidence=(
            f"asynchronous call #{call.number} of rank {call.rank}: {where(call)}",
            *_waited_at(run, call), *lines[:3],
        ),
    )]


def _waited_at(run: Run, call: Call) -> list[str]:
    if call.number in run.torch_waits:
        return [f"it was waited for at {place(*run.torch_waits[call.number])}"]
    return [] if call.number in waited(run) else ["it was never waited for"]


def _overlapping(run: Run) -> Iterator[Finding]:
    """The first two calls of one rank that were in flight over the same bytes."""
    over = dict.fromkeys(run.torch_waits, 0)  # waited for, nobody knows when: taken for early
    for number in [raw[7] for raw in run.raw if raw[1] == "wait_work"]:
        over.pop(number, None)
    for index, raw in enumerate(run.raw):
        if raw[1] == "wait_work":
            over.setdefault(raw[7], index)
    for calls in run.torch_calls:
        flying: list[Call] = []
        for call in calls:
            if not call.async_op or call.number < 0:
                continue
            flying = [one for one in flying if over.get(one.number, len(run.raw) + 1) > call.at]
            for one in flying:
                if _clash(one, call):
                    yield finding(
                        NAME, "overlapping_in_flight", call.rank,
                        f"rank {call.rank}'s {where(call)} uses memory that its {where(one)} still uses",
                        sites=(call_site(one), call_site(call)),
                        evidence=_waited_at(run, one) or ["the first was not waited for before"],
                    )
                    return
            flying.append(call)


def _clash(one: Call, other: Call) -> bool:
    def met(first: Call, second: Call) -> bool:
        return any(
            written.overlaps(used)
            for written in first.outputs for used in (*second.inputs, *second.outputs)
        )

    return met(one, other) or met(other, one)


def _dropped(run: Run) -> Iterator[Finding]:
    known = waited(run)
    lost = [
        call for calls in run.torch_calls for call in calls
        if call.async_op and call.number >= 0 and call.number not in known
        and not call.what  # a part of one of torch's own, or waited for by whoever uses its result
    ]
    if not lost:
        return
    first = min(lost, key=lambda call: call.at)
    done = any(raw[1] == "complete" and raw[7] == first.number for raw in run.raw)
    others = len(lost) - 1
    yield finding(
        NAME, "dropped_handle", first.rank,
        f"rank {first.rank} never waited for its {where(first)}"
        + ("" if done else ", which was not complete when the program ended"),
        sites=(call_site(first),),
        evidence=(
            "in another schedule its tensors are used, or the program ends, before it is complete",
            *([f"{others} more calls were never waited for"] if others else []),
        ),
    )
