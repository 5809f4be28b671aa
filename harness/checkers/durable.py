"""The checker `durable`: rules on a disk's operation log that hold without any crash.

A call stands in the log between the marks `begun` and `acknowledged`; the latter says what is promised:
`whole` (a crash may lose what the call made visible and never tears it), `durable` (nor lose it), or
nothing. Kinds: rename_before_fsync (a file gets its name while its data is not durable),
written_after_rename, folder_not_synced (the name is not durable at the acknowledgement),
parent_not_synced (the folder's own name is not), written_after_acknowledgement, removed_before_rename
(the old file goes before the new one has its name).

Not modelled: what an ordered file system makes durable on its own (these are the rules of weak POSIX,
which hold everywhere); files that become visible without a rename; data written through a mapping.
Source: reference/algorithms.md section 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.diagnosis.table import likely
from harness.disk_tree import LogEntry
from harness.finding import Finding
from harness.record import Run
from harness.simulated_disk import SimulatedDisk

WRITES = ("write", "truncate")


class Durable:
    """Reads the log of the SimulatedDisk that the scenario returned as `disk`."""

    name = "durable"

    def check(self, run: Run) -> Iterable[Finding]:
        """The first finding of each kind."""
        disk = run.observed.get("disk") if isinstance(run.observed, dict) else None
        if not isinstance(disk, SimulatedDisk):
            return
        told = set()
        for kind, at, text in _Rules(disk.log).broken():
            if kind in told:
                continue
            told.add(kind)
            cause, remedy = likely(f"durable/{kind}")
            yield Finding(
                checker="durable", kind=kind, rank=disk.log[at].rank, message=text, cause=cause,
                remedy=remedy, evidence=(f"entry {at} of the operation log: {disk.log[at].shown()}",),
            )


def _plain(path: str) -> str:
    return path.rstrip("/") or "/"


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class _Rules:
    """One log, read once."""

    def __init__(self, log: list[LogEntry]) -> None:
        self.log = log
        self.dirty: set[int] = set()  # files with changes that are not durable
        self.unnamed: dict[str, int] = {}  # folders made, by path: their own names are not durable
        self.promised: dict[int, str] = {}  # files that a call with a promise has named, with their call

    def broken(self) -> Iterator[tuple[str, int, str]]:
        """Kind, index of the entry, text; of every rule that is broken, in the log's order."""
        begun = 0
        for at, entry in enumerate(self.log):
            kind = entry.kind
            if kind in WRITES:
                if entry.inode in self.promised:
                    told = self.promised[entry.inode]
                    yield "written_after_acknowledgement", at, (
                        f"{entry.path} is written after {told} was acknowledged"
                    )
                self.dirty.add(entry.inode)
            elif kind == "fsync":
                self.dirty.discard(entry.inode)
            elif kind == "mkdir":
                self.unnamed[entry.path] = at
            elif kind == "fsync_dir":
                for path in [path for path in self.unnamed if _folder(path) == _plain(entry.path)]:
                    del self.unnamed[path]
            elif kind == "begun":
                begun = at
                dirty = set(self.dirty)
            elif kind == "acknowledged" and entry.target:
                yield from self._acknowledged(begun, at, dirty)

    def _acknowledged(self, begun: int, at: int, dirty: set[int]) -> Iterator[tuple[str, int, str]]:
        """The rules of one call: the files that it has given their names."""
        call = self.log[at].path
        promise = self.log[at].target
        removed: dict[str, int] = {}
        for index in range(begun, at):
            entry = self.log[index]
            if entry.kind in WRITES:
                dirty.add(entry.inode)
            elif entry.kind == "fsync":
                dirty.discard(entry.inode)
            elif entry.kind == "unlink":
                removed[entry.path] = index
            elif entry.kind == "rename":
                if entry.inode in dirty:
                    yield "rename_before_fsync", index, (
                        f"{call}: {entry.target} gets its name while its data is not durable"
                    )
                if entry.target in removed:
                    yield "removed_before_rename", removed[entry.target], (
                        f"{call}: {entry.target} is removed before its successor has the name"
                    )
                yield from self._named(index, at, call, promise)

    def _named(self, index: int, at: int, call: str, promise: str) -> Iterator[tuple[str, int, str]]:
        """What follows a rename until the acknowledgement."""
        entry = self.log[index]
        self.promised[entry.inode] = call
        folder = _folder(entry.target)
        synced = False
        for later in range(index + 1, at):
            other = self.log[later]
            if other.kind in WRITES and other.inode == entry.inode:
                yield "written_after_rename", later, f"{call}: {entry.target} is written under its name"
            synced |= other.kind == "fsync_dir" and _plain(other.path) == folder
        if promise != "durable":
            return
        if not synced:
            yield "folder_not_synced", index, (
                f"{call} is acknowledged as durable, and the name {entry.target} is not"
            )
        above = [path for path in self.unnamed if folder == path or folder.startswith(path + "/")]
        if above:
            yield "parent_not_synced", self.unnamed[above[0]], (
                f"{call} is acknowledged as durable, and the name of its folder {above[0]} is not"
            )


__all__ = ["Durable"]
