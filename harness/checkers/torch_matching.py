"""Whether the ranks of a torch.distributed program make calls that fit each other.

For each group, and for each pair of ranks and tag, the first sequence number at which calls do not fit:
parameters that differ (frontends/torch_distributed/agreement.py), a rank that left a call out, an order
that is exchanged (torch_order.py, torch_swaps.py). Of all these the earliest is the finding. Before it
comes a call in a group to which its rank does not belong, which torch turns into nothing, with a warning.

Not a finding here: a rank that has not arrived because it waits elsewhere (torch_waits.py), raised or
died. Not modelled: messages that a recv from any rank could have taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from harness.checkers.failures import real_failures
from harness.checkers.torch_order import exchanged, skipped
from harness.checkers.torch_swaps import exchanged_messages, exchanged_names, relayed_messages
from harness.checkers.wording import finding, ranks, unreturned
from harness.finding import Finding
from harness.frontends.torch_distributed.agreement import (
    Disagreement,
    disagreement,
    message_disagreement,
)
from harness.frontends.torch_distributed.calls import ANY, Call
from harness.record import Run, Site, place, site_of

NAME = "torch"
_REFINED = frozenset(
    ("different_collective", "different_shape", "different_dtype", "different_root",
     "different_reduce_op", "different_splits")
)


class _Found(NamedTuple):
    at: int
    finding: Finding


def matching(run: Run) -> Finding | None:
    """The first call that does not fit, or None."""
    strangers = [c for calls in run.torch_calls for c in calls if c.rank not in c.group]
    if strangers:
        return _stranger(min(strangers, key=lambda call: call.at))
    found = [*_collectives(run), *_messages(run)]
    return min(found, key=lambda one: one.at).finding if found else None


def by_group(run: Run) -> dict[str, dict[int, dict[int, Call]]]:
    """The collective calls that were not refused: group name -> rank -> sequence number -> call."""
    groups: dict[str, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    for calls in run.torch_calls:
        for call in calls:
            if not call.p2p and not call.refused:
                groups[call.group_name][call.rank][call.seq] = call
    return groups


def where(call: Call) -> str:
    """`all_reduce(x: [4] float32, op=sum) at file.py:3 in main`."""
    thread = f" (thread {call.thread!r})" if call.thread else ""
    return f"{call} at {place(call.code, call.lasti)}{thread}"


def _places(one: Call, other: Call) -> str:
    """`at a.py:3 in f and b.py:5 in g`, or `both at a.py:3 in f`."""
    first, second = (place(call.code, call.lasti) for call in (one, other))
    return f"both at {first}" if first == second else f"at {first} and {second}"


def call_site(call: Call) -> Site:
    """The user's call, for a finding's identity."""
    return site_of(call.code, call.lasti, call.kind)


def of_group(run: Run, call: Call) -> str:
    """` of group [0, 2]` where that is not the whole world."""
    return "" if call.group == tuple(range(run.ranks)) else f" of group {list(call.group)}"


def _stranger(call: Call) -> Finding:
    group = f"group {list(call.group)}" if call.group else "a group"
    return finding(
        NAME, "non_member_call", call.rank,
        f"rank {call.rank} calls {where(call)} in {group}, of which it is no member",
        sites=(call_site(call),),
        evidence=(f"torch does nothing there but warn: the tensor of rank {call.rank} stays as it was",),
    )


# Collectives --------------------------------------------------------------------------------------


def _collectives(run: Run) -> Iterator[_Found]:
    for by_rank in by_group(run).values():
        members = sorted({rank for calls in by_rank.values() for c in calls.values() for rank in c.group})
        last = max(seq for calls in by_rank.values() for seq in calls)
        for seq in range(last + 1):
            made = [by_rank[rank][seq] for rank in members if seq in by_rank.get(rank, ())]
            if differ := disagreement(made):
                if gap := _gap(by_rank, seq, differ.usual.rank, differ.odd.rank):
                    yield _Found(max(differ.odd.at, differ.usual.at), _skipped(run, *gap))
                else:
                    yield _Found(max(differ.odd.at, differ.usual.at), _different(run, seq, differ))
                break
            if absent := _absent(run, members, made):
                yield _missing(run, by_rank, seq, made, absent)
                break
        else:
            seq = last + 1
        upto = {rank: [calls[n] for n in range(seq) if n in calls] for rank, calls in by_rank.items()}
        if crossed := exchanged_names(upto):
            yield _Found(max(call.at for call in crossed), _swapped(run, *crossed))


def _absent(run: Run, members: list[int], made: list[Call]) -> list[int]:
    """The members that returned without the call which others made."""
    if not made:
        return []
    excused = {failure.rank for failure in real_failures(run)} | set(unreturned(run))
    return sorted(set(members) - {call.rank for call in made} - excused)


def _different(run: Run, seq: int, differ: Disagreement) -> Finding:
    odd, usual = differ.odd, differ.usual
    number = f"{'new_group' if usual.kind == 'new_group' else 'collective'} {seq}{of_group(run, usual)}"
    sides = [f"{ranks(who)} {told}" for told, who in differ.sides if len(differ.sides) > 1]
    evidence = [
        f"rank {call.rank}'s {number}: {where(call)}" for call in (usual, odd)
    ] + sides
    kind, message = differ.kind, (
        f"{number}: {differ.text}, {_places(odd, usual)}"
    )
    if kind in _REFINED and exchanged(odd, usual):
        kind = "different_order"
        message = (
            f"rank {odd.rank} makes two collectives in another order than rank {usual.rank}: its "
            f"{number} is {where(odd)}, rank {usual.rank}'s is {where(usual)}; each has still to make "
            "the other's"
        )
    elif kind in _REFINED and (left_out := skipped(odd, usual)):
        return _skipped(run, left_out, odd if left_out is usual else usual)
    return finding(
        NAME, kind, odd.rank, message, sites=(call_site(odd), call_site(usual)), evidence=evidence
    )


def _gap(
    by_rank: dict[int, dict[int, Call]], seq: int, one: int, other: int
) -> tuple[Call, Call] | None:
    """The first collective before `seq` that one of two ranks has skipped, and its call instead: alike
    calls hide a gap until others come."""
    for number in range(seq):
        calls = [by_rank[rank][number] for rank in (one, other) if number in by_rank.get(rank, ())]
        if len(calls) == 2 and (left_out := skipped(*calls)):
            return left_out, calls[1] if left_out is calls[0] else calls[0]
    return None


def _skipped(run: Run, left_out: Call, instead: Call) -> Finding:
    number = f"collective {left_out.seq}{of_group(run, left_out)}"
    return finding(
        NAME, "missing_collective", instead.rank,
        f"rank {instead.rank} has skipped {where(left_out)}, which rank {left_out.rank} makes as "
        f"{number}; rank {instead.rank} makes {where(instead)} instead",
        sites=(call_site(left_out), call_site(instead)),
        evidence=[f"rank {call.rank}'s {number}: {where(call)}" for call in (left_out, instead)],
    )


def _missing(
    run: Run, by_rank: dict[int, dict[int, Call]], seq: int, made: list[Call], absent: list[int]
) -> _Found:
    call = min(made, key=lambda one: one.rank)
    rank = absent[0]
    if (gap := _gap(by_rank, seq, call.rank, rank)) and gap[1].rank == rank:
        return _Found(call.at, _skipped(run, *gap))
    instead = "and returned"
    after = [c for c in run.torch_calls[rank] if call.at < c.at]
    if after:
        instead = f"and went on to {where(after[0])}"
    elif run.torch_calls[rank]:
        instead = f"and returned after {where(run.torch_calls[rank][-1])}"
    counts = ", ".join(f"rank {r}: {len(calls)}" for r, calls in sorted(by_rank.items()))
    return _Found(call.at, finding(
        NAME, "missing_collective", rank,
        f"{ranks(absent)} skipped collective {seq}{of_group(run, call)}, {where(call)}, which "
        f"{ranks(sorted(c.rank for c in made))} made; rank {rank} left it out {instead}",
        sites=(call_site(call),), evidence=(f"collectives{of_group(run, call)} made by {counts}",),
    ))


def _swapped(run: Run, one: Call, other: Call, later: Call, instead: Call) -> Finding:
    group = of_group(run, one)
    rest = f"as number {later.seq} the reverse"
    if later.seq != instead.seq:
        rest = (
            f"it makes the latter as number {instead.seq}, and rank {one.rank} the former as number "
            f"{later.seq}"
        )
    return finding(
        NAME, "different_order", other.rank,
        f"rank {other.rank} makes two collectives{group} in another order than rank {one.rank}: as "
        f"number {one.seq} {where(other)} against {where(one)}; {rest}",
        sites=tuple(map(call_site, (one, other, later, instead))),
        evidence=(
            *(f"rank {c.rank}'s collective {c.seq}{group}: {where(c)}"
              for c in (one, other, later, instead)),
            "kind, shape and dtype are alike: no check of metadata sees it, and the data are mixed up",
        ),
    )


# Messages -----------------------------------------------------------------------------------------

_Stream = tuple[str, int, int, int]  # group name, sender, receiver, tag


def streams(run: Run) -> dict[_Stream, tuple[list[Call], list[Call]]]:
    """The sends and the recvs of each group, pair of ranks and tag, each in their order; those that a
    recv from any rank could disturb are left out."""
    found: dict[_Stream, tuple[list[Call], list[Call]]] = defaultdict(lambda: ([], []))
    any_rank = set()
    for calls in run.torch_calls:
        for call in calls:
            if not call.p2p or call.refused:
                continue
            if call.peer == ANY:
                any_rank.add((call.group_name, call.rank))
            elif call.kind == "send":
                found[call.group_name, call.rank, call.peer, call.tag][0].append(call)
            else:
                found[call.group_name, call.peer, call.rank, call.tag][1].append(call)
    return {key: ends for key, ends in found.items() if (key[0], key[2]) not in any_rank}


def _messages(run: Run) -> Iterator[_Found]:
    for (_, sender, receiver, tag), ends in streams(run).items():
        for number, (send, receive) in enumerate(zip(*ends, strict=False)):
            if differ := message_disagreement(send, receive):
                what = f"message {number} from rank {sender} to rank {receiver}"
                what += f", tag {tag}" if tag else ""
                yield _Found(max(send.at, receive.at), finding(
                    NAME, differ.kind, sender,
                    f"{what}: {differ.text}, {_places(send, receive)}",
                    sites=(call_site(send), call_site(receive)),
                    evidence=(f"rank {sender}: {where(send)}", f"rank {receiver}: {where(receive)}"),
                ))
                break
        else:
            yield from _crossed_messages(run, sender, receiver, list(zip(*ends, strict=False)))


def _crossed_messages(
    run: Run, sender: int, receiver: int, pairs: list[tuple[Call, Call]]
) -> Iterator[_Found]:
    received = {n for c in run.torch_calls[sender] if c.kind == "recv" for n in c.names}
    sent = {n for c in run.torch_calls[receiver] if c.kind == "send" for n in c.names}
    sends = [c for c in run.torch_calls[receiver] if c.kind == "send" and not c.refused]
    if crossed := exchanged_messages(pairs, sent, received) or relayed_messages(pairs, sends):
        one, other, later, instead = crossed
        yield _Found(max(call.at for call in crossed), finding(
            NAME, "different_order", receiver,
            f"rank {receiver} receives two messages in another order than rank {sender} sends them: "
            f"{where(one)} against {where(other)}; then {where(later)} against {where(instead)}",
            sites=tuple(map(call_site, crossed)),
            evidence=[
                "shape and dtype are alike: no check of metadata sees it, and the data are mixed up"
            ],
        ))
