"""What a store's client did wrong, as its calls in the history show it: the cause behind a finding.

A call's record has what its program meant and what the store was given; where they differ, or where the
client went on before a task was done, that is the mistake. Looked at: the call that a finding is about,
then the dumps and commits of its block that came before, the latest first. Not modelled: mistakes in what
the program means (it would have to be read), two at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scenarios.store.history import Call, History

ID_BYTES = 16


class Mistake(NamedTuple):
    """because: the row of the table of causes. text: the proof in a line."""

    because: str
    text: str


def mistake(history: History, call: Call, block: int) -> Mistake | None:
    """The mistake that explains what happened to `block` in `call`; None where the record shows none."""
    before = [
        one for one in reversed(history.calls)
        if one is not call and block in one.blocks and one.kind in ("dump", "commit")
        and one.began < max(call.ended, call.began)
    ]
    for one in (call, *before):
        found = next(_of_one(one, block), None)
        if found is not None:
            return found
    return next(_ids(call, block, before), None)


def _of_one(call: Call, block: int) -> Iterator[Mistake]:
    """What the call's own record shows."""
    if call.early:
        because = "source_reused" if call.early == "wrote its source" else "not_waited"
        yield Mistake(
            because,
            f"the client of {call} {call.early} at event {call.early_at}, before its task was done",
        )
    meant, given = call.meant, call.given
    if meant is None or given is None or meant == given:
        return
    if len(given.ids) != len(meant.ids):
        yield Mistake("ids_missing", f"{call} passed {len(given.ids)} ids for {len(meant.ids)} blocks")
        return
    for number, due, one in zip(call.blocks, meant.ids, given.ids, strict=True):
        if len(one) != ID_BYTES:
            yield Mistake("id_length", f"{call} passed an id of {len(one)} bytes for block {number}")
        if number == block and one != due and one in meant.ids:
            other = call.blocks[meant.ids.index(one)]
            yield Mistake("id_of_another", f"{call} passed the id of block {other} for block {block}")
    yield from _of_tensor(call)


def _of_tensor(call: Call) -> Iterator[Mistake]:
    """Shard and tensor."""
    meant, given = call.meant, call.given
    assert meant is not None
    assert given is not None
    for because, what, due, one in (
        ("other_shard", "shard {}", meant.shard, given.shard),
        ("unreachable", "a tensor on {}", meant.device, given.device),
        ("other_dtype", "a tensor of {}", meant.dtype, given.dtype),
        ("other_length", "a tensor of {} bytes", meant.nbytes, given.nbytes),
    ):
        if one != due:
            yield Mistake(because, f"{call} passed {what.format(one)}, and meant {due}")
    if not given.contiguous:
        yield Mistake("not_contiguous", f"{call} passed a tensor that is not contiguous")


def _ids(call: Call, block: int, before: list[Call]) -> Iterator[Mistake]:
    """Another id for the same block than an earlier dump or commit passed."""
    mine = _id(call, block)
    for one in before if mine else ():
        other = _id(one, block)
        if other and other != mine:
            because = "ids_changed" if one.rank == call.rank else "ids_differ"
            yield Mistake(
                because, f"the id of block {block} was {other.hex()} in {one}, and {mine.hex()} in {call}"
            )


def _id(call: Call, block: int) -> bytes:
    """The id that the call passed for the block; b"" where that is not known."""
    given = call.given
    if given is None or block not in call.blocks or len(given.ids) != len(call.blocks):
        return b""
    return given.ids[call.blocks.index(block)]
