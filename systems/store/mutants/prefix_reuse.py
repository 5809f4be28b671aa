"""Mutants of prefixes: where they end, and whether anything is ever committed."""

from __future__ import annotations

from harness import mutant
from systems.store import front, tasks
from systems.store.errors import OK, BlockNotFound, StoreError


@mutant(of=front.BlockStore._prefix, expects="store/uncommitted_visible", ranks=1)
def first_miss_counted(self: front.BlockStore, ids: list[bytes]) -> int:
    """The index of the first miss is returned for that of the last hit.

    Finding: store/uncommitted_visible. Smallest world: 1.
    """
    for count, one in enumerate(ids):
        if not self._top.visible(one):
            return count + 1
    return len(ids)


@mutant(of=front.BlockStore._prefix, expects="store/lost_block", ranks=1)
def last_block_left_out(self: front.BlockStore, ids: list[bytes]) -> int:
    """The last block of a prompt is never asked for, as it will have to be computed anyway.

    Source: LMCache issue 4508, part of the prefix is never used. Finding: store/lost_block. Smallest
    world: 1.
    """
    for count, one in enumerate(ids[:-1]):
        if not self._top.visible(one):
            return count
    return max(len(ids) - 1, 0)


@mutant(of=front.BlockStore._commit, expects="store/lost_block", ranks=1)
def committed_as_failed(self: front.BlockStore, block_id: bytes, *, good: bool) -> int:
    """The flags arrive inverted: every block is dropped, and that succeeds.

    Source: UCM issues 184 and 279, nothing ever hits. Finding: store/lost_block. Smallest world: 1.
    """
    try:
        if good:
            self._top.drop(block_id)
        else:
            self._top.commit(block_id)
    except StoreError as error:
        return error.code
    return OK


@mutant(of=tasks.Task.run, expects="exceptions/block_damaged|exceptions/disk_failed", ranks=1)
def worker_knows_misses_only(self: tasks.Task) -> None:
    """A worker handles blocks that are not there; any other failure ends it.

    Source: SGLang issue 39269, only "not found" was handled. Finding:
    exceptions/block_damaged|exceptions/disk_failed. Smallest world: 1.
    """
    while (turn := self._next()) is not None:
        try:
            turn[1]()
        except BlockNotFound as error:
            self._finish(turn[0], error)
        else:
            self._finish(turn[0], None)
