"""Every state in which a crash may leave a disk, cheapest bugs first, each once.

`CrashStates` enumerates a log (crash_log.py says what may persist): every crash point with all that was
done; less one effect; less two; with its last write torn; with nothing but what is durable; then every
set that the profile allows, with each of its tears, up to `budget` a crash point. A state is told once:
one with the same names and contents after the same marks is the same state. Sets are told by what they
lack, so a budget cuts off those that lack most (but for the one that lacks all).

A tear takes the end of the last write that persisted and was not durable, from a sector on; the file
ends there, or (not under ext4) has its size and old bytes or zeros.

Not modelled: several torn writes at once; sectors that persist out of order within one write. A crash
of the recovery is the same once more, with the recovery's log on the first state as its base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from harness.crash_log import CrashLog, bits
from harness.crash_sets import less, sets
from harness.disk_files import EMPTY, ROOT, Image, Inode, Profile, apply
from harness.disk_tree import LogEntry, Tree
from harness.plan import Crash
from harness.simulated_disk import SimulatedDisk

SECTOR = 512
TOLD = 8  # lost effects that are named
TEARS = 16  # places at which one write is torn
BUDGET = 1024  # sets and tears a crash point

Tear = tuple[int, int, bool]  # the write, bytes lost at its end, whether the file has its size
Key = tuple[int, int, tuple[int, ...]]


class Aftermath(NamedTuple):
    """What a scenario's recovery is given: the disk after the crash, the crash, what the part before it
    had returned (whose `disk` it was), and the crash in words."""

    disk: SimulatedDisk
    crash: Crash
    observed: Any
    told: tuple[str, ...] = ()


class _Names(NamedTuple):
    """Names that persisted: their number as a set of paths, the tables, and the files in path order."""

    number: int
    folders: dict[int, dict[str, int]]
    files: tuple[int, ...]


class CrashStates:
    """The crash states of a log as values of a plan's `crash`; `tried` counts those looked at.

    base: what was there before the log begins. budget: see the module.
    """

    def __init__(
        self, log: Sequence[LogEntry], profile: Profile = "posix", base: Image = EMPTY, *,
        budget: int = BUDGET,
    ) -> None:
        self.log = CrashLog(log, profile, base)
        self.budget = budget
        self.tried = 0
        self.whole = True  # whether every allowed state was looked at; known when the iteration ends
        self._seen: set[Key] = set()
        self._names: dict[int, _Names] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._contents: dict[tuple[int, int, Tear | None], int] = {}
        self._bytes: dict[bytes, int] = {}

    def __iter__(self) -> Iterator[Crash]:
        points = range(self.log.length + 1)
        for lacking in range(3):
            for at in points:
                for mask in self._lacking(at, lacking):
                    yield from self._new(at, mask)
        for at in points:
            full = (1 << at) - 1 & self.log.all
            for tear in self._tears(at, full):
                yield from self._new(at, full, tear)
        yield from self._least()
        for at in points:
            if at == self.log.length or self._turns(at):
                yield from self._every(at)

    def simplest(self) -> Iterator[Crash]:
        """The two extremes of each crash point: nothing lost, and everything that is not durable."""
        for at in range(self.log.length + 1):
            yield from self._new(at, (1 << at) - 1 & self.log.all)
        yield from self._least()

    def _least(self) -> Iterator[Crash]:
        for at in range(self.log.length + 1):
            yield from self._new(at, self.log.forced[at])

    # Sets -------------------------------------------------------------------------------------------

    def _lacking(self, at: int, count: int) -> set[int]:
        """The allowed sets that lack `count` of the effects before `at`."""
        level = {(1 << at) - 1 & self.log.all}
        for _ in range(count):
            level = less(self.log, at, level)
        return level

    def _turns(self, at: int) -> bool:
        """Whether the next entry makes something durable, or is a mark: other points add no sets."""
        log = self.log
        return log.forced[at + 1] != log.forced[at] or log.context[at + 1] != log.context[at]

    def _every(self, at: int) -> Iterator[Crash]:
        """Every allowed set and each of its tears, to the budget."""
        left = self.budget
        for mask in sets(self.log, at):
            for tear in (None, *self._tears(at, mask)):
                if not left:
                    self.whole = False
                    return
                left -= 1
                yield from self._new(at, mask, tear)

    def _tears(self, at: int, mask: int) -> list[Tear]:
        """How the last write of a set that is not durable may be torn."""
        last = (mask & ~self.log.forced[at] & self.log.writes).bit_length() - 1
        if last < 0:
            return []
        number, (offset, chunk) = self.log.data[last]
        assert chunk is not None
        end = offset + len(chunk)
        cuts = list(range(offset // SECTOR * SECTOR + SECTOR, end, SECTOR))
        lost = [end - cut for cut in cuts[:: len(cuts) // TEARS + 1]]
        found = [(last, one, False) for one in lost]
        if self.log.profile != "ext4" and end > len(self._content(number, mask & ~(1 << last), None)):
            found += [(last, one, True) for one in (*lost, len(chunk))]
        return found

    # States -----------------------------------------------------------------------------------------

    def _new(self, at: int, mask: int, tear: Tear | None = None) -> Iterator[Crash]:
        """The state, unless it was told before."""
        self.tried += 1
        key = self._key(at, mask, tear)
        if key not in self._seen:
            self._seen.add(key)
            keep = tuple(bits(mask & ~self.log.forced[at]))
            yield Crash(at, keep) if tear is None else Crash(at, keep, tear[1], tear[2])

    def _key(self, at: int, mask: int, tear: Tear | None) -> Key:
        names = self._named(mask & self.log.all_names)
        return self.log.context[at], names.number, tuple(
            [self._number_of(number, mask, tear) for number in names.files]
        )

    def _number_of(self, number: int, mask: int, tear: Tear | None) -> int:
        """A number that stands for a file's content."""
        mine = mask & self.log.on.get(number, 0)
        if tear is not None and not mine >> tear[0] & 1:
            tear = None
        key = number, mine, tear
        if key not in self._contents:
            content = bytes(self._content(number, mine, tear))
            self._contents[key] = self._bytes.setdefault(content, len(self._bytes))
        return self._contents[key]

    def _content(self, number: int, mask: int, tear: Tear | None) -> bytearray:
        content = bytearray(self.log.base.files.get(number, b""))
        for index in bits(mask & self.log.on.get(number, 0)):
            offset, chunk = self.log.data[index][1]
            if tear is None or index != tear[0] or chunk is None:
                apply(content, (offset, chunk))
                continue
            apply(content, (offset, chunk[: len(chunk) - tear[1]]))
            if tear[2] and len(content) < offset + len(chunk):
                content.extend(bytes(offset + len(chunk) - len(content)))
        return content

    def _named(self, mask: int) -> _Names:
        """The names that are there when these effects persisted."""
        if mask not in self._names:
            self._names[mask] = self._walked(mask)
        return self._names[mask]

    def _walked(self, mask: int) -> _Names:
        tables = {number: dict(names) for number, names in self.log.base.folders.items()}
        for index in bits(mask):
            for folder, name, number in self.log.names[index]:
                table = tables.setdefault(folder, {})
                if number:
                    table[name] = number
                else:
                    table.pop(name, None)
        folders: dict[int, dict[str, int]] = {}
        paths: list[tuple[str, int]] = []
        waiting = [("", ROOT)]
        while waiting:
            begin, folder = waiting.pop()
            folders[folder] = tables.get(folder, {})
            for name, number in folders[folder].items():
                if number not in self.log.folders:
                    paths.append((f"{begin}/{name}", number))
                elif number not in folders:
                    paths.append((f"{begin}/{name}/", 0))
                    waiting.append((f"{begin}/{name}", number))
        paths.sort()
        known = self._numbers.setdefault(tuple([path for path, _ in paths]), len(self._numbers))
        return _Names(known, folders, tuple([number for _, number in paths if number]))

    # A plan's crash ---------------------------------------------------------------------------------

    def image(self, crash: Crash) -> Image:
        """What is there after the crash; what the profile does not allow of it is clamped."""
        _, mask, tear = self._fitted(crash)
        names = self._named(mask & self.log.all_names)
        contents = {number: bytes(self._content(number, mask, self._own(number, tear)))
                    for number in names.files}
        return Image(names.folders, contents)

    def _fitted(self, crash: Crash) -> tuple[int, int, Tear | None]:
        """Crash point, effects and tear."""
        at = min(crash.at, self.log.length)
        forced = self.log.forced[at]
        wanted = sum(1 << index for index in set(crash.keep) if index < at) & self.log.all | forced
        mask = sum(1 << index for index in bits(wanted) if not self.log.needs[index] & ~wanted)
        if not crash.torn:
            return at, mask, None
        tears = [one for one in self._tears(at, mask) if one[2] == crash.zeros]
        return at, mask, min(tears, key=lambda one: abs(one[1] - crash.torn), default=None)

    def told(self, crash: Crash) -> tuple[str, ...]:
        """The crash in words: where it comes, what is lost, what is torn."""
        entries = self.log.entries
        at, mask, tear = self._fitted(crash)
        last = f", after {entries[at - 1].shown()}" if at else ""
        lines = [f"the crash comes after {at} entries of the operation log{last}"]
        lost = bits((1 << at) - 1 & self.log.all & ~mask)
        lines += [f"lost: entry {index}, {entries[index].shown()}" for index in lost[:TOLD]]
        if len(lost) > TOLD:
            lines.append(f"lost: {len(lost) - TOLD} more")
        if tear is not None:
            end = "its size stays, with zeros or old bytes" if tear[2] else "the file ends there"
            torn = entries[tear[0]].shown()
            lines.append(f"torn: entry {tear[0]}, {torn}, lacks its last {tear[1]} bytes; {end}")
        return tuple(lines)

    def _own(self, number: int, tear: Tear | None) -> Tear | None:
        return tear if tear is not None and self.log.data[tear[0]][0] == number else None

    def disk(self, crash: Crash, *, direct_block: int | None = None) -> SimulatedDisk:
        """The same as a disk."""
        return disk_of(self.image(crash), self.log.profile, direct_block=direct_block)


def disk_of(image: Image, profile: Profile, *, direct_block: int | None = None) -> SimulatedDisk:
    """A disk that holds an image, all of it durable and old; its log is empty."""
    tree = Tree(None, None)
    tree.base = image
    made = {ROOT: tree.root}
    for number, content in image.files.items():
        node = made[number] = Inode(number, 0.0, is_dir=False)
        node.data, node.durable = bytearray(content), bytearray(content)
        tree.used += len(content)
    for number in image.folders:
        made.setdefault(number, Inode(number, 0.0, is_dir=True))
    for number, names in image.folders.items():
        folder = made[number]
        folder.entries = {name: made[one] for name, one in names.items()}
        folder.durable_entries = dict(folder.entries)
        for node in folder.entries.values():
            node.links += 1
    tree._inodes = max(made)
    return SimulatedDisk(direct_block=direct_block, tree=tree, profile=profile)


__all__ = ["BUDGET", "SECTOR", "Aftermath", "CrashStates", "disk_of"]
