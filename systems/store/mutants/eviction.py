"""Mutants of buffers and blocks that go while somebody works with them."""

from __future__ import annotations

from harness import mutant
from systems.store import capacity, tasks


@mutant(of=capacity.Sweep.touch, expects="store/lost_block|store/unexpected_error", ranks=1)
def touch_fails_the_load(self: capacity.Sweep, path: str) -> None:
    """File times are set after a load, and that this cannot be done ends the load with an error.

    Source: LMCache issue 4133, a block goes between lookup and retrieve. Finding:
    store/lost_block|store/unexpected_error, the block was collected in between. Smallest world: 1.
    """
    if self._limit:
        self._disk.utime(path, self._clock.time())


@mutant(
    of=tasks.Task.run, ranks=1,
    expects="exceptions/block_not_found|exceptions/block_damaged|exceptions/disk_failed",
)
def worker_ends_with_a_miss(self: tasks.Task) -> None:
    """A load that fails ends the worker that did it.

    Source: SGLang issue 39269, a bad page kills the prefetch thread. Finding:
    exceptions/block_not_found|exceptions/block_damaged|exceptions/disk_failed. Smallest world: 1.
    """
    while (turn := self._next()) is not None:
        turn[1]()
        self._finish(turn[0], None)
