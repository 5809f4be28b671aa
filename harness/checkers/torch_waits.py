"""Why a torch.distributed program stands still: who waits in which call for whom.

A blocked rank waits in a collective for the members that have not made theirs, in a send for the
receiver's recv, in a recv for the sender's send (from any rank: for one of them). The root is a rank
waited for that has returned, else a ring of ranks that wait for each other, which is shown whole, else
(unsatisfied) whoever waits. A message that has no partner is named on both sides: peer, tag, and what
the peer does instead.

A thread that waits for another thread of its rank (a lock, a queue, a join) waits for the one that has
the lock, where that is known, else for any of its rank that waits in a call. Which thread of a peer owes
a collective is not known: the one of the same name is taken for it, else the main one.

Not modelled: a rank that polls without waiting (progress.py).
"""

from __future__ import annotations

from typing import NamedTuple

from harness.checkers.failures import of_threads, real_failures, stuck_at
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
from harness.record import Blocked, Run, Site, place, site_of


class _Wait(NamedTuple):
    """What a blocked lane waits in, and for which ranks: for all of them, or for any one. call: None for
    a lock, which is `blocked`'s."""

    blocked: Blocked
    call: Call | None
    needs: tuple[int, ...] = ()
    any_of: bool = False

    @property
    def site(self) -> Site:
        """The user's call."""
        if self.call is not None:
            return call_site(self.call)
        return site_of(self.blocked.code, self.blocked.lasti, "lock")


_Waits = dict[int, _Wait]  # by lane


def standstill(run: Run) -> Finding | None:
    """The finding of a world that is blocked in calls of torch.distributed, or None."""
    if run.ended != "blocked" or real_failures(run):
        return None
    waits: _Waits = {}
    for blocked in sorted(run.blocked, key=lambda one: one.lane):
        if (call := _call_of(run, blocked)) is not None:
            waits[blocked.lane] = _Wait(blocked, call, *_needs(run, call))
        elif blocked.kind == "lock":
            waits[blocked.lane] = _Wait(blocked, None)
    stuck = {blocked.rank for blocked in run.blocked}
    for lane, wait in waits.items():
        gone = [peer for peer in wait.needs if peer not in stuck]
        if gone and (not wait.any_of or len(gone) == len(wait.needs)):
            return _gone(run, lane, gone, waits)
    if apart := _tags(waits):
        return apart
    if ring := _ring(run, waits):
        return _cycle(run, ring, waits)
    return _unsatisfied(run, waits) if waits else _store(run)


def _store(run: Run) -> Finding | None:
    """Ranks that wait for keys which nobody sets, in a world where nobody waits for anything else."""
    blocked = [one for one in run.blocked if one.kind == "work"]
    lines = [
        f"rank {one.rank} waits in {event.kind} for {event.value.decode()!r} at "
        f"{place(one.code, one.lasti)}"
        for one in blocked
        for event in run.events
        if event.number == _number(one) and event.owner == one.lane and isinstance(event.value, bytes)
    ]
    if not lines:
        return None
    return finding(
        NAME, "unsatisfied", blocked[0].rank, f"{lines[0]}, which nobody sets",
        sites=(site_of(blocked[0].code, blocked[0].lasti, "store"),), evidence=lines[1:],
    )


def _number(blocked: Blocked) -> int:
    """Of the work that a lane awaits (detail: `all_reduce #7`), or -1."""
    number = blocked.detail.rpartition("#")[2]
    return int(number) if number.isdigit() else -1


def _call_of(run: Run, blocked: Blocked) -> Call | None:
    """The call that a lane is blocked in: the work it awaits, else its last one at that place."""
    if blocked.kind != "work":
        return None
    done = {raw[7] for raw in run.raw if raw[1] == "complete"}
    open_calls = [c for c in run.torch_calls[blocked.rank] if c.number >= 0 and c.number not in done]
    numbered = [c for c in open_calls if c.number == _number(blocked)]
    here = [c for c in open_calls if (c.code, c.lasti) == (blocked.code, blocked.lasti)]
    return next(iter(numbered or here or open_calls), None)


def _needs(run: Run, call: Call) -> tuple[tuple[int, ...], bool]:
    """The ranks that have still to make a call for this one to complete; whether any of them will do."""
    others = tuple(rank for rank in call.group if rank != call.rank)
    if not call.p2p:
        made = by_group(run)[call.group_name]
        return tuple(rank for rank in others if call.seq not in made.get(rank, ())), False
    return (others, True) if call.peer == ANY else ((call.peer,), False)


def _followers(run: Run, lane: int, waits: _Waits) -> list[int]:
    """The blocked lanes for one of which a lane waits, the likeliest first."""
    wait = waits[lane]
    if wait.call is not None:
        found = []
        for peer in wait.needs:
            lanes = [other for other in waits if waits[other].blocked.rank == peer]
            found += sorted(lanes, key=lambda other: (
                run.threads.get(other) != run.threads.get(lane), other in run.threads, other
            ))[:1]
        return found
    if wait.blocked.holder >= 0:
        return [wait.blocked.holder] if wait.blocked.holder in waits else []
    return [
        other for other, one in waits.items() if other != lane and one.call is not None
        and one.blocked.rank == wait.blocked.rank
    ]


def _ring(run: Run, waits: _Waits) -> list[int]:
    """Lanes each of which waits for the next, and the last one for the first; the lowest first."""
    for start in waits:
        path: list[int] = []
        lane: int | None = start
        while lane is not None and lane not in path:
            path.append(lane)
            lane = next(iter(_followers(run, lane, waits)), None)
        if lane is not None:
            ring = path[path.index(lane) :]
            lowest = ring.index(min(ring))
            return ring[lowest:] + ring[:lowest]
    return []


def _tags(waits: _Waits) -> Finding | None:
    """A send and a recv that wait for each other, and have different tags."""
    calls = [wait.call for wait in waits.values() if wait.call is not None]
    for send in calls:
        for other in calls if send.kind == "send" else ():
            if (
                other.kind == "recv" and other.rank == send.peer and other.peer == send.rank
                and other.tag != send.tag and other.group_name == send.group_name
            ):
                return finding(
                    NAME, "different_tag", send.rank,
                    f"rank {send.rank} waits in {where(send)}, rank {other.rank} in "
                    f"{where(other)}: the tags differ",
                    sites=(call_site(send), call_site(other)),
                )
    return None


def _for(run: Run, wait: _Wait) -> str:
    """`waits in send([4] float32, to rank 1) at file.py:3 in main`."""
    call = wait.call
    if call is None:
        return stuck_at(run, wait.blocked)
    group = "" if call.p2p else of_group(run, call)
    usual = next((c.group_name for calls in run.torch_calls for c in calls if not c.p2p), "")
    if not group and not call.p2p and call.group_name != usual:
        group = f" of group {call.group_name!r}"  # another one of all ranks
    return f"waits in {call} at {place(call.code, call.lasti)}{group}"


def _others(run: Run, waits: _Waits, told: list[int]) -> list[str]:
    lines = []
    for lane, wait in sorted(waits.items(), key=lambda item: (item[0] not in told, item[0])):
        whom = f"{'any of ' if wait.any_of else ''}{ranks(wait.needs)}" if wait.call is not None else (
            run.lane_name(wait.blocked.holder) if wait.blocked.holder >= 0 else ""
        )
        lines.append(f"{run.lane_name(lane)} {_for(run, wait)}{f'; for {whom}' if whom else ''}")
    return lines + of_threads(run)


def _cycle(run: Run, ring: list[int], waits: _Waits) -> Finding:
    """send_recv_cycle: all of it are messages; cycle: collectives, or locks, too."""
    parts = [waits[lane] for lane in ring]
    messages = all(part.call is not None and part.call.p2p for part in parts)
    steps = [f"{run.lane_name(lane)} {_for(run, waits[lane])}" for lane in ring]
    again = run.lane_name(ring[0])
    who = f"{len(ring)} lanes" if run.threads else ranks(ring)
    return finding(
        NAME, "send_recv_cycle" if messages else "cycle", parts[0].blocked.rank,
        f"{who} wait for each other: {' -> '.join((*steps, again))}" if len(ring) > 1 else
        f"{steps[0]} for itself",
        sites=[part.site for part in parts], evidence=_others(run, waits, ring),
        graph=[f"{step}  <- here" for step in steps] + [f"    -> {again}"],
        because="" if all(part.call for part in parts) else "lock_over_collective",
    )


def _unsatisfied(run: Run, waits: _Waits) -> Finding:
    """Whoever waits for nobody that is blocked; idle threads of a pool last."""
    lane = min(waits, key=lambda one: (
        bool(run.threads and _followers(run, one, waits)), waits[one].blocked.code is None,
        one in run.threads, one,
    ))
    wait = waits[lane]
    return finding(
        NAME, "unsatisfied", wait.blocked.rank,
        f"{run.lane_name(lane)} {_for(run, wait)}; nothing can end the wait",
        sites=(wait.site,), evidence=_others(run, waits, [lane]),
        because="thread_raised" if wait.call is None and run.raised else "",
    )


def _gone(run: Run, lane: int, gone: list[int], waits: _Waits) -> Finding:
    """A rank waits for one that has returned: a message without a partner, or a call left out."""
    call, peer, rank = waits[lane].call, gone[0], waits[lane].blocked.rank
    assert call is not None
    evidence = _others(run, waits, [lane])
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
