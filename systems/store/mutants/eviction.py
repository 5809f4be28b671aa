"""Mutants of buffers and blocks that go while somebody works with them."""

from __future__ import annotations

from harness import mutant
from systems.store import capacity, pool, tasks
from systems.store.errors import StoreError


@mutant(of=pool.PrivatePool._evictable, expects="store/silent_corruption", ranks=1)
def references_ignored(self: pool.PrivatePool, node: pool.Node) -> bool:
    """The buffer that was used longest ago is given to another block, also while somebody works with it.

    Source: LMCache issue 4133, pins that do not hold. Finding: store/silent_corruption.
    Smallest world: 1.
    """
    return True


@mutant(of=pool.PrivatePool.outcome, expects="store/silent_corruption", ranks=1)
def owner_not_awaited(self: pool.PrivatePool, node: pool.Node) -> StoreError | None:
    """Who finds a buffer that another load is filling reads it at once.

    Source: SGLang issue 8901, reads before the copy is complete. Finding: store/silent_corruption.
    Smallest world: 1.
    """
    return node.error


@mutant(of=pool.PrivatePool.let_go, expects="store/silent_corruption", ranks=1)
def let_go_frees_at_once(self: pool.PrivatePool, node: pool.Node) -> None:
    """The first of several that lets go frees the buffer of a node that is cached no more.

    Source: LMCache issue 1858, a free that does not heed other users. Finding:
    store/silent_corruption. Smallest world: 1.
    """
    with self._lock:
        node.holders = 0
        if self._nodes.get(node.key) is not node:
            self._reuse(node)


@mutant(of=capacity.Sweep.touch, expects="store/lost_block", ranks=1)
def touch_fails_the_load(self: capacity.Sweep, path: str) -> None:
    """File times are set after a load, and that this cannot be done ends the load with an error.

    Source: LMCache issue 4133, a block goes between lookup and retrieve. Finding: store/lost_block, the
    block was collected in between. Smallest world: 1.
    """
    if self._limit:
        self._disk.utime(path, self._clock.time())


@mutant(of=tasks.Task.run, expects="exceptions/block_not_found|exceptions/block_damaged|exceptions/disk_failed", ranks=1)
def worker_ends_with_a_miss(self: tasks.Task) -> None:
    """A load that fails ends the worker that did it.

    Source: SGLang issue 39269, a bad page kills the prefetch thread. Finding: exceptions/raised.
    Smallest world: 1.
    """
    while (turn := self._next()) is not None:
        turn[1]()
        self._finish(turn[0], None)
