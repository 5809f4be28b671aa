"""Why a torch.distributed program stands still: who waits in which call for whom.

A blocked rank waits in a collective for the members that have not made theirs, in a send for the
receiver's recv, in a recv for the sender's send (from any rank: for one of them). The root is a rank
waited for that has returned, else a ring of ranks that wait for each other, which is shown whole, else
(unsatisfied) whoever waits. A message that has no partner is named on both sides: peer, tag, and what
the peer does instead.

Not modelled: lanes other than one a rank; a rank that polls without waiting (progress.py).
"""

from __future__ import annotations

from typing import NamedTuple

from harness.checkers.failures import real_failures
from harness.checkers.torch_matching import (
    NAME,
    by_group,
    call_site,
    of_group,
    streams,
    where,
)
from harness.checkers.wording import finding, ranks
from harness.finding import Finding
from harness.frontends.torch_distributed.calls import ANY, Call
from harness.record import Blocked, Run, place


class _Wait(NamedTuple):
    """What a blocked rank waits in, and for whom: for all of them, or for any one."""

    call: Call
    needs: tuple[int, ...]
    any_of: bool


def standstill(run: Run) -> Finding | None:
    """The finding of a world that is blocked in calls of torch.distributed, or None."""
    if run.ended != "blocked" or real_failures(run):
        return None
    waits = {}
    for blocked in run.blocked:
        if (call := _call_of(run, blocked)) is not None:
            waits[blocked.rank] = _Wait(call, *_needs(run, call))
    stuck = {blocked.rank for blocked in run.blocked}
    for rank, wait in sorted(waits.items()):
        gone = [peer for peer in wait.needs if peer not in stuck]
        if gone and (not wait.any_of or len(gone) == len(wait.needs)):
            return _gone(run, rank, wait, gone, waits)
    if ring := _ring(waits):
        return _cycle(run, ring, waits)
    return _unsatisfied(run, waits) if waits else None


def _call_of(run: Run, blocked: Blocked) -> Call | None:
    """The call that a lane is blocked in: the work it awaits, else its last one at that place."""
    if blocked.kind != "work":
        return None
    done = {raw[7] for raw in run.raw if raw[1] == "complete"}
    open_calls = [c for c in run.torch_calls[blocked.rank] if c.number >= 0 and c.number not in done]
    numbered = [c for c in open_calls if f"#{c.number}" in blocked.detail.split()]
    here = [c for c in open_calls if (c.code, c.lasti) == (blocked.code, blocked.lasti)]
    return next(iter(numbered or here or open_calls), None)


def _needs(run: Run, call: Call) -> tuple[tuple[int, ...], bool]:
    """The ranks that have still to make a call for this one to complete; whether any of them will do."""
    others = tuple(rank for rank in call.group if rank != call.rank)
    if not call.p2p:
        made = by_group(run)[call.group_name]
        return tuple(rank for rank in others if call.seq not in made.get(rank, ())), False
    return (others, True) if call.peer == ANY else ((call.peer,), False)


def _ring(waits: dict[int, _Wait]) -> list[int]:
    """Ranks each of which waits for the next, and the last one for the first; the lowest first."""
    for start in sorted(waits):
        path: list[int] = []
        rank: int | None = start
        while rank is not None and rank not in path:
            path.append(rank)
            rank = next((peer for peer in waits[rank].needs if peer in waits), None)
        if rank is not None:
            ring = path[path.index(rank) :]
            lowest = ring.index(min(ring))
            return ring[lowest:] + ring[:lowest]
    return []


def _for(run: Run, wait: _Wait) -> str:
    """`waits in send([4] float32, to rank 1) at file.py:3 in main`."""
    return f"waits in {where(wait.call)}{of_group(run, wait.call) if not wait.call.p2p else ''}"


def _others(run: Run, waits: dict[int, _Wait], told: list[int]) -> list[str]:
    return [
        f"rank {rank} {_for(run, wait)}; for {'any of ' if wait.any_of else ''}{ranks(wait.needs)}"
        for rank, wait in sorted(waits.items(), key=lambda item: (item[0] not in told, item[0]))
    ]


def _cycle(run: Run, ring: list[int], waits: dict[int, _Wait]) -> Finding:
    """send_recv_cycle: all of it are messages; cycle: collectives too."""
    calls = [waits[rank].call for rank in ring]
    messages = all(call.p2p for call in calls)
    steps = [f"rank {rank} {_for(run, waits[rank])}" for rank in ring]
    again = f"rank {ring[0]}"
    return finding(
        NAME, "send_recv_cycle" if messages else "cycle", ring[0],
        f"{ranks(ring)} wait for each other: {' -> '.join((*steps, again))}" if len(ring) > 1 else
        f"{steps[0]} for itself",
        sites=map(call_site, calls), evidence=_others(run, waits, ring),
        graph=[f"{step}  <- here" for step in steps] + [f"    -> {again}"],
    )


def _unsatisfied(run: Run, waits: dict[int, _Wait]) -> Finding:
    rank = min(waits)
    return finding(
        NAME, "unsatisfied", rank, f"rank {rank} {_for(run, waits[rank])}; nothing can end the wait",
        sites=(call_site(waits[rank].call),), evidence=_others(run, waits, [rank]),
    )


def _gone(
    run: Run, rank: int, wait: _Wait, gone: list[int], waits: dict[int, _Wait]
) -> Finding:
    """A rank waits for one that has returned: a message without a partner, or a call left out."""
    call, peer = wait.call, gone[0]
    evidence = _others(run, waits, [rank])
    last = run.torch_calls[peer][-1:] if peer < len(run.torch_calls) else []
    did = f"its last call was {where(last[0])}" if last else "it made no call"
    if not call.p2p:
        return finding(
            NAME, "missing_collective", peer,
            f"{ranks(gone)} returned without collective {call.seq}{of_group(run, call)}, {where(call)}, "
            f"in which rank {rank} waits; {did}",
            sites=(call_site(call),), evidence=evidence,
        )
    due = "recv" if call.kind == "send" else "send"
    evidence += _unmatched(run, call, peer)
    return finding(
        NAME, "missing_message", peer,
        f"{ranks(gone)} returned without the {due} for which rank {rank} waits in {where(call)}; {did}",
        sites=(call_site(call),), evidence=evidence,
    )


def _unmatched(run: Run, call: Call, peer: int) -> list[str]:
    """Messages between the two that have another tag, and no partner either."""
    lines = []
    for (_, sender, receiver, tag), (sends, receives) in sorted(streams(run).items()):
        if {sender, receiver} == {call.rank, peer} and tag != call.tag and len(sends) != len(receives):
            one = (sends if len(sends) > len(receives) else receives)[-1]
            lines.append(
                f"also without a partner: rank {one.rank}'s {one} with tag {tag} at "
                f"{place(one.code, one.lasti)}"
            )
    return lines
