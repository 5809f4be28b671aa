"""A disk's operation log as effects, and which of them a crash may take: the durability profiles.

An effect is one entry of the log that changes names or contents, known by its index; sets of effects are
bit masks. `forced[k]` is what is durable when the crash comes after k entries, `needs[i]` what has
persisted wherever effect i has. What a crash leaves is `forced[k]`, any of the other effects among the
first k, and what those need.

- posix (weak): fsync of a file forces its writes and truncations, fsync of a folder the changes of names
  in it. Nothing else is forced and nothing needs anything.
- ext4 (ordered, without auto_da_alloc): names and truncations persist in the order of issue, and every
  fsync forces all of them that came before it (one journal). A write that makes its file longer needs
  what was written to the file before, any write the changes of size before it.
- nfs (close-to-open): changes of names and truncations are durable when they return, writes when a
  descriptor of their file is closed or synchronised, or the file is truncated.

A failed fsync forces nothing, and what it would have forced stays optional for good. A rename is one
effect, between two folders too. A write can be torn at sectors (crash_states.py). Not modelled: the times
of files; contents exchanged by the `swapped` fault; writes of several entries that are merged.
Source: reference/algorithms.md section 8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harness.disk_files import ROOT, Change, Image, Profile
from harness.disk_tree import LogEntry

MARKS = ("begun", "acknowledged")
NameChange = tuple[int, str, int]  # folder, name, what it is from now on (0: nothing)


def bits(mask: int) -> list[int]:
    """The indexes in a mask, in order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class CrashLog:
    """The effects of a log.

    names, data: by index, what an effect changes. on: by number of a file or folder, the effects on it.
    folders: the folders' numbers. context: by position, how many marks came before it.
    """

    def __init__(self, log: Sequence[LogEntry], profile: Profile, base: Image) -> None:
        self.profile = profile
        self.base = base
        self.entries = list(log)
        self.length = len(log)
        self.names: dict[int, tuple[NameChange, ...]] = {}
        self.data: dict[int, tuple[int, Change]] = {}
        self.on: dict[int, int] = defaultdict(int)
        self.needs: list[int] = []
        self.forced = [0]
        self.context = [0]
        self._tables = {number: dict(names) for number, names in base.folders.items()}
        self._sizes = {number: len(content) for number, content in base.files.items()}
        self._resized: dict[int, int] = defaultdict(int)  # by file, effects on its size
        self._pending: dict[int, int] = defaultdict(int)  # by file or folder, what an fsync would force
        self._ordered = 0  # effects that go through the journal
        for index, entry in enumerate(log):
            self.needs.append(0)
            self._now = 0  # what this entry forces
            self._read(index, entry)
            self.forced.append(self.forced[-1] | self.closed(self._now))
            self.context.append(self.context[-1] + (entry.kind in MARKS))
        self.folders = set(self._tables)
        self.all_names = sum(1 << index for index in self.names)
        self.between_folders = any(
            changes[0][0] != changes[-1][0] for changes in self.names.values()
        )
        self.writes = sum(1 << at for at, (_, change) in self.data.items() if change[1] is not None)
        self.all = self.all_names | sum(1 << index for index in self.data)
        self.users = [0] * self.length  # by effect, those that need it
        for index, needed in enumerate(self.needs):
            for one in bits(needed):
                self.users[one] |= 1 << index

    def closed(self, mask: int) -> int:
        """`mask` and all that it needs."""
        for index in bits(mask):
            mask |= self.needs[index]
        return mask

    def _read(self, index: int, entry: LogEntry) -> None:
        kind, number = entry.kind, entry.inode
        if kind in ("mkdir", "create"):
            if kind == "mkdir":
                self._tables[number] = {}
            self._named(index, (*self._place(entry.path), number))
        elif kind == "unlink":
            self._named(index, (*self._place(entry.path), 0))
        elif kind == "rename":
            self._named(index, (*self._place(entry.path), 0), (*self._place(entry.target), number))
        elif kind == "write":
            self._write(index, entry)
        elif kind in ("truncate", "damage"):
            self._truncate(index, entry)
        elif kind in ("fsync", "fsync_dir") or (kind == "close" and self.profile == "nfs"):
            self._synchronised(number)
        elif kind == "failed_fsync" and number not in self._tables:
            self._pending[number] = 0

    def _place(self, path: str) -> tuple[int, str]:
        """The folder that holds the last name of `path`, and that name."""
        trail = [ROOT]
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for part in parts[:-1]:
            if part == "..":
                del trail[max(len(trail) - 1, 1) :]
            else:
                trail.append(self._tables[trail[-1]][part])
        return trail[-1], parts[-1]

    def _named(self, index: int, *changes: NameChange) -> None:
        self.names[index] = changes
        for folder, name, number in changes:
            if number:
                self._tables[folder][name] = number
            else:
                self._tables[folder].pop(name, None)
            self.on[folder] |= 1 << index
            self._pending[folder] |= 1 << index
        self._metadata(index)

    def _metadata(self, index: int) -> None:
        if self.profile == "ext4":
            self.needs[index] = self._ordered
        elif self.profile == "nfs":
            self._now |= 1 << index
        self._ordered |= 1 << index

    def _write(self, index: int, entry: LogEntry) -> None:
        number, end = entry.inode, entry.offset + entry.length
        longer = end > self._sizes.get(number, 0)
        if self.profile == "ext4":
            before = self.on[number] if longer else self._resized[number]
            self.needs[index] = self.closed(before)
        self._changed(index, number, (entry.offset, entry.data))
        if longer:
            self._resized[number] |= 1 << index
            self._sizes[number] = end

    def _truncate(self, index: int, entry: LogEntry) -> None:
        number = entry.inode
        if entry.kind == "damage":  # on the medium as well
            self._now |= 1 << index
        else:
            if self.profile == "nfs":
                self._now |= self._pending[number]
            self._metadata(index)
        self._changed(index, number, (entry.length, None))
        self._resized[number] |= 1 << index
        self._sizes[number] = entry.length

    def _changed(self, index: int, number: int, change: Change) -> None:
        self.data[index] = number, change
        self.on[number] |= 1 << index
        self._pending[number] |= 1 << index

    def _synchronised(self, number: int) -> None:
        self._now |= self._pending[number]
        if self.profile == "ext4":
            self._now |= self._ordered
        self._pending[number] = 0


__all__ = ["MARKS", "CrashLog", "NameChange", "bits"]
