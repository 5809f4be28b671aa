"""The sets of effects that may persist at one crash point, each with another result, fewest losses first.

Where nothing needs anything (posix, nfs) a tree is put together from its parts: every table that the
root folder may have, for each of them every table of the folders and every content of the files that
have a name in it, and so on. What has no name is left out, so that each set has names or contents of its
own. Under ext4, or with a rename between folders, the sets are made by taking one effect after another
away; several of them may have the same result.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from harness.crash_log import CrashLog, bits
from harness.disk_files import ROOT, apply


class _Variant(NamedTuple):
    """One table of a folder or content of a file: the effects behind it, how many are lost, and the
    files and folders that have a name in it."""

    mask: int
    lost: int
    children: tuple[int, ...] = ()


def sets(log: CrashLog, at: int) -> Iterator[int]:
    """Every set, as a mask that includes what is durable."""
    if log.profile == "ext4" or log.between_folders:
        yield from _taken_away(log, at)
    else:
        yield from _Parts(log, at).sets()


def less(log: CrashLog, at: int, level: set[int]) -> set[int]:
    """The allowed sets that have one effect less than one of `level`."""
    return {
        mask & ~(1 << index)
        for mask in level for index in bits(mask & ~log.forced[at]) if not log.users[index] & mask
    }


def _taken_away(log: CrashLog, at: int) -> Iterator[int]:
    level = {(1 << at) - 1 & log.all}
    while level:
        yield from sorted(level, reverse=True)
        level = less(log, at, level)


class _Content(NamedTuple):
    """A file's content, with what decides how it can be torn: its last write that is not durable, what
    was there before it, and what was done to the file after it."""

    content: bytes
    last: int = -1
    before: bytes = b""
    after: int = 0


class _Parts:
    """The parts of a tree at one crash point."""

    def __init__(self, log: CrashLog, at: int) -> None:
        self._log = log
        self._before = (1 << at) - 1
        self._forced = log.forced[at]
        self._known: dict[int, list[_Variant]] = {}

    def sets(self) -> Iterator[int]:
        """Cheapest first: an unfinished tree costs what it has lost so far."""
        turn = itertools.count()
        trees: list[tuple[int, int, int, tuple[int, ...]]] = [(0, next(turn), self._forced, (ROOT,))]
        while trees:
            lost, _, mask, waiting = heapq.heappop(trees)
            if not waiting:
                yield mask
                continue
            for one in self._variants(waiting[0]):
                following = tuple(dict.fromkeys((*waiting[1:], *one.children)))
                heapq.heappush(trees, (lost + one.lost, next(turn), mask | one.mask, following))

    def _variants(self, number: int) -> list[_Variant]:
        if number not in self._known:
            made = self._tables if number in self._log.folders else self._contents
            self._known[number] = sorted(made(number), key=lambda one: one.lost)
        return self._known[number]

    def _tables(self, folder: int) -> Iterator[_Variant]:
        """Every table, with the fewest losses that lead to it."""
        start = tuple(sorted(self._log.base.folders.get(folder, {}).items()))
        found: dict[tuple[tuple[str, int], ...], tuple[int, int]] = {start: (0, 0)}
        for index in bits(self._log.on.get(folder, 0) & self._before):
            longer: dict[tuple[tuple[str, int], ...], tuple[int, int]] = {}
            for table, (lost, mask) in found.items():
                names = dict(table)
                for _, name, number in self._log.names[index]:
                    names.pop(name, None)
                    if number:
                        names[name] = number
                kept = tuple(sorted(names.items()))
                self._note(longer, kept, lost, mask | 1 << index)
                if not self._forced >> index & 1:
                    self._note(longer, table, lost + 1, mask)
            found = longer
        for table, (lost, mask) in found.items():
            yield _Variant(mask, lost, tuple([number for _, number in table]))

    def _contents(self, number: int) -> Iterator[_Variant]:
        """Every content; two that a tear would not make alike are two."""
        start = _Content(self._log.base.files.get(number, b""))
        found: dict[_Content, tuple[int, int]] = {start: (0, 0)}
        for index in bits(self._log.on.get(number, 0) & self._before):
            longer: dict[_Content, tuple[int, int]] = {}
            change = self._log.data[index][1]
            free = not self._forced >> index & 1
            for one, (lost, mask) in found.items():
                changed = bytearray(one.content)
                apply(changed, change)
                if free and change[1] is not None:
                    kept = _Content(bytes(changed), index, one.content)
                else:
                    kept = one._replace(content=bytes(changed), after=one.after | 1 << index)
                self._note(longer, kept, lost, mask | 1 << index)
                if free:
                    self._note(longer, one, lost + 1, mask)
            found = longer
        for lost, mask in found.values():
            yield _Variant(mask, lost)

    @staticmethod
    def _note(found: dict[Any, tuple[int, int]], key: Any, lost: int, mask: int) -> None:
        if key not in found or lost < found[key][0]:
            found[key] = lost, mask


__all__ = ["less", "sets"]
