"""Mutants of the two streams: events that are not awaited, or recorded too early."""

from __future__ import annotations

from harness import Rank, Window, mutant
from systems.collectives import streams as twin


@mutant(of=twin.await_chunk, expects="integrity/wrong_value", ranks=1)
def copy_not_ordered_after_compute(rank: Rank, cells: Window, done: int) -> None:
    """The copy lane does not wait for the event behind the compute, and sends what the slot held before.
    Finding: integrity/wrong_value. Smallest world: 1.
    """


@mutant(of=twin.await_slot, expects="integrity/wrong_value", ranks=1)
def slot_filled_before_copied(rank: Rank, cells: Window, done: int) -> None:
    """The compute lane fills a slot that the copy lane still reads. Finding: integrity/wrong_value.
    Smallest world: 1.
    """


@mutant(of=twin.await_copies, expects="lifetime/use_after_free", ranks=1)
def freed_on_one_stream_used_on_the_other(rank: Rank, cells: Window, done: int) -> None:
    """The staging buffer is freed on the compute lane while the copy lane still uses it, as a tensor
    without record_stream is. Finding: lifetime/use_after_free. Smallest world: 1.
    """


@mutant(of=twin.record, expects="integrity/unwritten_memory", ranks=1)
def event_recorded_before_the_copy(rank: Rank, cells: Window, event: int) -> None:
    """An event does not wait for the copies issued before it: the arrival overtakes the data, or the slot
    is filled again under the copy. Finding: integrity/unwritten_memory.
    Smallest world: 1.
    """
    rank.notify(cells, rank.index, event, 1)
