"""Two ranks that exchange calls of torch.distributed of which no metadata shows that they differ.

Collectives of one group: rank a's tensor is held by variable p (or the call is written p) where rank b's
is q, and at other sequence numbers, with the same metadata, a has q and b has p; each of the two as
often on both ranks. Messages: the sender sends p, then q, and the receiver takes q, then p, between the
same two ranks with one tag, though the sender receives neither and the receiver sends neither (as ranks
of a ring do, which use two buffers in turns). Messages that are passed on: the sender sends p and q, and
the receiver, when it has both, passes on the first one as q and the second one as p.

No alarm: ranks that pass different variables, or stand in different branches, and never exchange them
(`if rank == 0: broadcast(x, 0)` `else: broadcast(y, 0)`); ranks that agree on a name which tells the two
calls apart (`first, second = (x, y) if rank else (y, x)`, then all_reduce(first) and (second)); scratch
buffers, of which it does not matter which is used: on each rank the second of the two is written anew
after the first one's call, so that it was not its turn that was exchanged. The code overrules that:
two places that follow each other within one round, the other way round on the other rank.

Wrong by this rule: scratch buffers, used in opposite turns under plain names, that are filled before the
call of the other one, or that share their memory. Silent: values written into kept tensors just before
each call, where both calls are made in one place. Not modelled: order across groups.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from harness.checkers.torch_order import still_ahead, written
from harness.frontends.torch_distributed.calls import ANY, Call, TensorMeta

Crossing = tuple[Call, Call, Call, Call]
NEXT_MAX = 8  # calls of one name that are looked at behind another


def exchanged_names(by_rank: Mapping[int, Sequence[Call]]) -> Crossing | None:
    """For calls of one group by rank, each list in order of seq, which agree otherwise: a's call with p,
    b's call in its stead with q, then a's with q and b's with p; None if there are none."""
    roots = {call.root for calls in by_rank.values() for call in calls} - {ANY}
    # With one root for all: only it shows whether what it sends was written anew.
    first = roots.pop() if len(roots) == 1 and roots <= by_rank.keys() else min(by_rank)
    for rank in sorted(by_rank.keys() - {first}):
        crossed = next(_Pair(by_rank[first], by_rank[rank]).crossings(), None)
        if crossed is not None:
            return crossed
    return None


class _Pair:
    """The collectives of two ranks, side by side."""

    def __init__(self, first: Sequence[Call], second: Sequence[Call]) -> None:
        self._calls = list(zip(first, second, strict=False))
        self._labels = [(_labels(one), _labels(other)) for one, other in self._calls]
        self._at: tuple[dict[str, list[int]], ...] = (defaultdict(list), defaultdict(list))
        for index, labels in enumerate(self._labels):
            for side in (0, 1):
                for label in labels[side]:
                    self._at[side][label].append(index)

    def crossings(self) -> Iterator[Crossing]:
        """One after the other."""
        for index, (mine, others) in enumerate(self._labels):
            if not (mine - others and others - mine):
                continue
            pairs = itertools.product(sorted(mine - others), sorted(others - mine))
            for p, q in pairs:
                if self._as_often(p) and self._as_often(q):
                    yield from self._crossed(index, p, q)

    def _as_often(self, label: str) -> bool:
        return len(self._at[0].get(label, ())) == len(self._at[1].get(label, ()))

    def _after(self, side: int, label: str, index: int) -> list[int]:
        """The next calls of that name after one."""
        places = self._at[side].get(label, [])
        begin = bisect_right(places, index)
        return places[begin : begin + NEXT_MAX]

    def _crossed(self, index: int, p: str, q: str) -> Iterator[Crossing]:
        one, other = self._calls[index]
        agreed = self._agreed(index)
        for later, instead in itertools.product(self._after(0, q, index), self._after(1, p, index)):
            if p in self._labels[later][0] or q in self._labels[instead][1]:
                continue
            if any(self._agreed(at) != agreed for at in (later, instead)):
                continue  # a name on which the ranks agree tells the calls apart
            found = one, other, self._calls[later][0], self._calls[instead][1]
            if len({_alike(call) for call in found}) == 1 and _matters(*found):
                yield found

    def _agreed(self, index: int) -> set[str]:
        mine, others = self._labels[index]
        return mine & others


def exchanged_messages(
    pairs: Sequence[tuple[Call, Call]], sent: set[str], received: set[str]
) -> Crossing | None:
    """For the sends and recvs of one stream, paired. sent: variables that the receiver sends; received:
    those that the sender receives into. Returns a send of p and its recv of q, a send of q and its recv
    of p."""
    seen: dict[tuple[str, str], tuple[Call, Call]] = {}
    for later, instead in pairs:
        taken = set(instead.names) - sent - received
        given = set(later.names) - sent - received
        if set(later.names) & set(instead.names):
            continue  # both call it the same
        for q, p in itertools.product(sorted(given), sorted(taken)):
            one, other = seen.get((p, q), (None, None))
            if (
                one and other and _metas(one) == _metas(later) and p not in other.names
                and _matters(one, other, later, instead)
            ):
                return one, other, later, instead
            seen[q, p] = later, instead
    return None


def relayed_messages(pairs: Sequence[tuple[Call, Call]], sends: Sequence[Call]) -> Crossing | None:
    """For the sends and recvs of one stream, paired, and all sends of the receiver: it calls a message
    what it calls that very memory when it passes it on. Returned as by exchanged_messages.

    Only of two messages that both were there before either was passed on: two buffers in turns are not.
    """
    passed: dict[int, list[Call]] = defaultdict(list)
    for send in sends:
        passed[send.inputs[0].storage].append(send)
    for index, (one, other) in enumerate(pairs):
        for later, instead in pairs[index + 1 : index + 1 + NEXT_MAX]:
            first, second = _passed_on(passed, other, instead), _passed_on(passed, instead, other)
            if first is None or second is None:
                continue
            if len({_metas(call) for call in (one, later, first, second)}) > 1:
                continue
            p, q, as_q, as_p = (set(call.names) for call in (one, later, first, second))
            if (p & as_p) - q - as_q and (q & as_q) - p - as_p:
                return one, other, later, instead
    return None


def _passed_on(passed: Mapping[int, Sequence[Call]], received: Call, beside: Call) -> Call | None:
    """The send of what was received, if that comes after both messages were asked for."""
    sends = passed.get(received.outputs[0].storage, ())
    found = next((send for send in sends if send.at > received.at), None)
    return found if found is not None and found.at > beside.at else None


def _matters(one: Call, other: Call, later: Call, instead: Call) -> bool:
    """Whether the order of p and q was chosen, and not just which of two scratch buffers is used."""
    by_code = all(
        (now.code, now.lasti) != (then.code, then.lasti) and still_ahead(now, then)
        for now, then in ((one, later), (other, instead))
    )
    return by_code or not (_anew(one, later) and _anew(other, instead))


def _anew(now: Call, then: Call) -> bool:
    """Whether the tensor of the later call was written after the earlier one; a tensor that is only
    filled by its call says nothing against it."""
    tensor = _tensors(then)[0] if _tensors(then) else TensorMeta((), "")
    if then.kind == "recv" or (then.kind in ("broadcast", "scatter") and then.root != then.rank):
        return True
    return any(
        storage == tensor.storage and version != then.version for storage, version in now.beside
    )


def _labels(call: Call) -> set[str]:
    """What the tensor is called: by variables, and by the text of the call."""
    return {*call.names, written(call)} - {""}


_kind = attrgetter("family", "op", "root")


def _alike(call: Call) -> object:
    return _kind(call), _metas(call)


def _tensors(call: Call) -> tuple[TensorMeta, ...]:
    return call.inputs or call.outputs


def _metas(call: Call) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in _tensors(call))
