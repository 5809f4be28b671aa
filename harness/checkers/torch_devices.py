"""Whether two ranks of one machine use one CUDA device in a collective: NCCL's "Duplicate GPU detected".

same_device: in a group of nccl two ranks make a collective on the same card of the same machine, as
ranks do that forget torch.cuda.set_device or take "cuda" for their own. Said only where it is certain:
the tensor was put on that card, or the rank has put tensors on one card alone (Call.card). Not seen:
messages, barriers and object collectives, which carry no tensor of the program's; groups of more than
one backend.
"""

from __future__ import annotations

from harness.checkers.torch_matching import NAME, by_group, call_site, of_group, where
from harness.checkers.wording import finding
from harness.finding import Finding
from harness.frontends.torch_distributed.calls import Call
from harness.record import Run


def same_device(run: Run) -> Finding | None:
    """The first two calls of one collective that are on one card, or None."""
    pairs = [
        pair
        for by_rank in by_group(run).values()
        for seq in {seq for calls in by_rank.values() for seq in calls}
        if (pair := _pair([calls[seq] for _, calls in sorted(by_rank.items()) if seq in calls]))
    ]
    return _told(run, *min(pairs, key=lambda pair: pair[1].at)) if pairs else None


def _pair(calls: list[Call]) -> tuple[Call, Call] | None:
    first: dict[str, Call] = {}
    for call in calls:
        if call.card and first.setdefault(call.card, call) is not call:
            return first[call.card], call
    return None


def _told(run: Run, one: Call, other: Call) -> Finding:
    card = one.card.rpartition(":")[2]
    return finding(
        NAME, "same_device", other.rank,
        f"ranks {one.rank} and {other.rank} are both on CUDA device {card} in {where(other)}"
        f"{of_group(run, other)}: NCCL refuses it (\"Duplicate GPU detected\")",
        sites=(call_site(other),),
        evidence=(f"rank {one.rank}: {where(one)}", f"rank {other.rank}: {where(other)}"),
    )
