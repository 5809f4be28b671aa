"""Whether the calls that meet in one collective, or in one message, agree with each other. Pure.

Every parameter that has to agree, in the order in which a difference is reported: the group's members
and their order, the collective, the root, the reduce operation, the dtypes, the shapes, the splits. What
may differ: whether the call is asynchronous, the strides, the form (a list of tensors, or one flat
tensor: the numbers of elements must fit). Shapes must be equal, not only their numbers of elements:
gloo reduces [4] with [2, 2] and says nothing. A message must have as many elements on both sides; its
shape may change on the way.

The side that is fewer ranks is the odd one; on a tie the higher rank is. Not modelled: what one call
gets wrong by itself (an output of the wrong size), which the backend refuses at the call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from harness.frontends.torch_distributed.calls import Call, TensorMeta


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The first parameter in which calls differ.

    kind: different_group, different_collective, different_root, different_reduce_op, different_dtype,
    different_shape, different_splits; of a message different_message_dtype, different_message_size.
    odd, usual: a call of the odd side and one of the other. text: what differs, without places.
    sides: each value as a text, with its ranks; the usual one first.
    """

    kind: str
    odd: Call
    usual: Call
    text: str
    sides: tuple[tuple[str, tuple[int, ...]], ...] = ()


def disagreement(calls: Sequence[Call]) -> Disagreement | None:
    """The first disagreement among calls that members of one group made at one sequence number.

    Any two of them will do: who is missing is not looked at.
    """
    if len(calls) < 2:
        return None
    mixed = len({call.kind for call in calls}) > 1
    for kind, value, told in (*_PARAMETERS, ("different_shape", _pieces if mixed else _shapes, _shaped)):
        sides: dict[Hashable, list[Call]] = defaultdict(list)
        for call in calls:
            sides[value(call)].append(call)
        if len(sides) > 1:
            return _of_sides(kind, sorted(sides.values(), key=_usual_first), told)
    return _of_exchange(calls) if calls[0].family == "all_to_all" else None


def message_disagreement(send: Call, receive: Call) -> Disagreement | None:
    """What the two ends of a message do not agree on: the dtype, or the number of elements."""
    given, taken = send.inputs[0], receive.outputs[0]
    if given.dtype != taken.dtype:
        kind, sent, due = "different_message_dtype", given.dtype, taken.dtype
    elif given.numel != taken.numel:
        kind, sent, due = "different_message_size", str(given), str(taken)
    else:
        return None
    text = f"rank {send.rank} sends {sent}, rank {receive.rank} receives {due}"
    return Disagreement(kind, send, receive, text)


def _of_sides(
    kind: str, sides: list[list[Call]], told: Callable[[Call], str]
) -> Disagreement:
    usual = sides[0][0]
    odd = min((side[0] for side in sides[1:]), key=lambda call: call.rank)
    text = f"rank {odd.rank} {told(odd)}, rank {usual.rank} {told(usual)}"
    if kind == "different_shape" and _pieces(odd) == _pieces(usual):
        text += " (as many elements)"
    return Disagreement(
        kind, odd, usual, text,
        tuple((told(side[0]), tuple(call.rank for call in side)) for side in sides),
    )


def _usual_first(side: list[Call]) -> tuple[int, int]:
    return -len(side), min(call.rank for call in side)


def _of_exchange(calls: Sequence[Call]) -> Disagreement | None:
    """all_to_all: what each rank sends to another must be what that one expects from it."""
    at = {call.rank: call for call in calls}
    wrong = [
        (sender, receiver)
        for sender in calls for rank, sent in zip(sender.group, _per_rank(sender, 0), strict=False)
        if (receiver := at.get(rank)) is not None
        and sent != _per_rank(receiver, 1)[sender.group.index(sender.rank)]
    ]
    if not wrong:
        return None
    wrong.sort(key=lambda pair: pair[0].rank == pair[1].rank)  # what goes to itself comes last
    counts = Counter(call.rank for pair in wrong for call in pair)
    most = max(counts.values())
    # The rank in most of the pairs that do not fit; the sender of the first one on a tie.
    blamed = wrong[0][0].rank if counts[wrong[0][0].rank] == most else max(
        rank for rank in counts if counts[rank] == most
    )
    sender, receiver = next(pair for pair in wrong if blamed in (pair[0].rank, pair[1].rank))
    sent = _per_rank(sender, 0)[sender.group.index(receiver.rank)]
    due = _per_rank(receiver, 1)[sender.group.index(sender.rank)]
    whom, who = f"rank {receiver.rank}", "which"
    if sender.rank == receiver.rank:
        whom, who = "itself", "and"
    return Disagreement(
        "different_splits", at[blamed], receiver if sender.rank == blamed else sender,
        f"rank {sender.rank} sends {sent} elements to {whom}, {who} expects {due} from it",
    )


def _per_rank(call: Call, side: int) -> list[int]:
    """all_to_all: how many elements go to each rank (side 0), or are due from each (side 1)."""
    tensors = call.outputs if side else call.inputs
    if call.kind == "all_to_all":
        return [tensor.numel for tensor in tensors]
    whole, size = tensors[0].numel, len(call.group)
    if not call.splits[side]:
        return [whole // size] * size
    row = whole // max(1, tensors[0].shape[0])
    return [rows * row for rows in call.splits[side]]


def _tensors(call: Call) -> tuple[TensorMeta, ...]:
    """Those of which ranks must have alike ones."""
    if call.family in ("broadcast", "scatter"):
        return call.outputs or call.inputs
    if call.family == "all_gather" and len({t.shape for t in call.outputs}) > 1:
        return call.outputs  # uneven, and said so
    return call.inputs or call.outputs


def _shapes(call: Call) -> Hashable:
    if call.family == "all_to_all":
        return ()  # _of_exchange compares pair by pair
    return tuple(tensor.shape for tensor in _tensors(call))


def _pieces(call: Call) -> Hashable:
    """The numbers of elements, however the call gives them: in a list, or in one flat tensor."""
    if call.family == "all_to_all":
        return ()
    counts = tuple(tensor.numel for tensor in _tensors(call))
    if call.kind == "reduce_scatter_tensor":
        return (counts[0] // len(call.group),) * len(call.group)
    return counts


def _dtypes(call: Call) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tensor.dtype for tensor in (*_tensors(call), *call.outputs)))


def _shaped(call: Call) -> str:
    shapes = [str(list(tensor.shape)) for tensor in _tensors(call)]
    return f"passes {', '.join(shapes[:4])}{', …' if len(shapes) > 4 else ''}"


_PARAMETERS: tuple[tuple[str, Callable[[Call], Hashable], Callable[[Call], str]], ...] = (
    ("different_group", lambda c: c.group, lambda c: f"calls it in group {list(c.group)}"),
    ("different_group", lambda c: c.kind == "new_group" and c.what,
     lambda c: f"makes a group of {c.what}"),
    ("different_group", lambda c: c.kind == "split_group" and c.what,
     lambda c: f"splits it into {c.what}"),
    ("different_collective", lambda c: c.family, lambda c: f"calls {c}"),
    ("different_root", lambda c: c.root, lambda c: f"has root {c.root}"),
    ("different_reduce_op", lambda c: c.op, lambda c: f"reduces with {c.op}"),
    ("different_dtype", _dtypes, lambda c: f"passes {', '.join(_dtypes(c))}"),
)
