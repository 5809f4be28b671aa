"""Which tasks of a device wrote which memory, as the runtime keeps it to find the edges of the next ones.

Whoever reads or writes memory comes after the tasks that wrote what overlaps it; a writer does not come
after who reads. Two views of one tensor with the same strides overlap where they do on every axis (so two
blocks of columns do not); others where the stretches from their first to their last byte do. Memory that
was created with `manual_dep=True` makes no edges.

Not modelled: a table that is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from harness.frontends.pypto.values import View

Uses = Sequence[tuple[View, bool, bool]]  # memory, whether it is read, whether it is written
Task = TypeVar("Task")


class Written(Generic[Task]):
    """The last writers of a device's memory."""

    def __init__(self) -> None:
        self._writers: list[tuple[View, Task]] = []
        self._untracked: set[int] = set()  # by number of the handle

    def leave_out(self, view: View) -> None:
        """The memory of `view` makes no edges."""
        self._untracked.add(view.handle.number)

    def before(self, uses: Uses) -> list[Task]:
        """The tasks that one with these uses comes after."""
        return [
            task for view, _, _ in uses for other, task in self._writers if overlap(view, other)
        ]

    def add(self, task: Task, uses: Uses) -> None:
        """A task that comes after all those will write: whoever is next comes after it, no longer after
        the ones whose memory it covers."""
        for view, _, writes in uses:
            if writes and view.handle.number not in self._untracked:
                self._writers = [one for one in self._writers if not covers(view, one[0])]
                self._writers.append((view, task))

    def clear(self) -> None:
        """All of them have ended."""
        self._writers.clear()


def span(view: View) -> tuple[int, int, int]:
    """The window, and the first and the last byte (exclusive), that a view's elements lie between."""
    size = view.dtype.get_byte()
    last = view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
    base = view.handle.start
    return view.handle.number, base + view.offset * size, base + (last + 1) * size if view.numel else base


def overlap(one: View, other: View) -> bool:
    """Whether the runtime takes two views for overlapping."""
    (number, low, high), (number_2, low_2, high_2) = span(one), span(other)
    if number != number_2 or high <= low_2 or high_2 <= low:
        return False
    boxes = _boxes(one, other)
    return boxes is None or all(a < d and c < b for (a, b), (c, d) in boxes)


def covers(one: View, other: View) -> bool:
    """Whether the runtime takes `other` for a part of `one`."""
    (number, low, high), (number_2, low_2, high_2) = span(one), span(other)
    if number != number_2 or low_2 < low or high < high_2:
        return False
    boxes = _boxes(one, other)
    if boxes is None:
        return one.dense
    return all(a <= c and d <= b for (a, b), (c, d) in boxes)


def _boxes(one: View, other: View) -> list[tuple[tuple[int, int], tuple[int, int]]] | None:
    """By axis, the first and the last index (exclusive) of both, as parts of one tensor; None where their
    strides do not tell."""
    strides = one.strides
    if strides != other.strides or one.dtype is not other.dtype or one.handle.start != other.handle.start:
        return None
    if not strides or min(strides) < 1 or any(wide % narrow for wide, narrow in pairwise(strides)):
        return None
    ends = [_box(one), _box(other)]
    extents = [wide // narrow for wide, narrow in pairwise(strides)]  # of every axis but the first
    if any(end > extent for box in ends for (_, end), extent in zip(box[1:], extents, strict=True)):
        return None
    return list(zip(*ends, strict=True))


def _box(view: View) -> list[tuple[int, int]]:
    found, rest = [], view.offset
    for extent, stride in zip(view.shape, view.strides, strict=True):
        start, rest = divmod(rest, stride)
        found.append((start, start + extent))
    return found
