"""Clients of one store on one fresh folder, and the history of what they saw.

A client is an adapter in a subject process; the folder may lie on a disk whose power can be cut, or
that gets full. Its tensors lie in memory shared with it, at the distance
from a page that the workload asks for; a target is full of poison before each load. The first hang,
crash, misuse or failed open ends the workload: what follows from it is no finding of its own.
"""

from __future__ import annotations

import inspect
import os
import resource
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from harness import (
    Answer,
    Crashed,
    Expired,
    Failed,
    PowerCut,
    Reply,
    SmallDisk,
    Subject,
    UsageError,
)
from scenarios.store.adapters.adapter import Adapter
from scenarios.store.adapters.history import ENDS, MISSING, History, Status, Step, block_id

POISON = 0xA5
PRELOADED = ("scenarios.store.adapters",)
ROOM = 64 << 20  # of a disk that is not full
Damage = Literal["bit_flip", "truncated", "swapped", "deleted"]
Shortage = Literal["disk", "file", "descriptors"]
_Reply = Reply | UsageError | Literal["killed"]


class Over(Exception):
    """A client is gone; the history says how."""


class Bench:
    """A folder and the clients on it. sizes: of the blocks. shifts: of sources and of targets. disk:
    where the folder is, if not below TMPDIR."""

    def __init__(
        self, adapter: type[Adapter], sizes: Sequence[int], shifts: tuple[int, int] = (0, 0),
        disk: PowerCut | SmallDisk | None = None,
    ) -> None:
        unit, fixed = adapter.alignment, adapter.block_bytes
        fitting = [fixed or -(-size // unit) * unit for size in sizes]
        self.history = History(adapter, tuple(fitting))
        self._shifts = [shift // unit * unit for shift in shifts]
        self._clients: list[Subject] = []
        self._name = f"{inspect.getfile(adapter)}::{adapter.__qualname__}"
        self._sources: dict[tuple[int, int], int] = {}
        self._disk = disk
        self._ending: set[int] = set()
        self._limited: list[tuple[int, int, tuple[int, int]]] = []
        self.folder = Subject.new_folder() if disk is None else disk.inside

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self._clients:
            client.close()
        if self._disk is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def open(self) -> int:
        """A new client with the folder open; its number."""
        number = len(self._clients)
        try:
            preload = (*PRELOADED, *self.history.adapter.preload)
            self._clients.append(
                Subject(
                    self._name, preload=preload, mounts_of=self._disk,
                    interpreter=self.history.adapter.interpreter(),
                )
            )
        except UsageError as error:
            self._record(Step(number, "open", (), (Status("misuse", str(error)),)))
        self._call(number, "open", (), self.folder)
        if self.history.steps[-1].statuses[0].kind == "error":
            raise Over  # rightly so or not: nothing can be asked of it
        return number

    def dump(self, client: int, blocks: Sequence[int], version: int = 0) -> None:
        """Dump blocks with the bytes of `version`."""
        self.dump_together({client: blocks}, version)

    def dump_together(self, jobs: Mapping[int, Sequence[int]], version: int = 0) -> None:
        """Clients dump blocks, all at the same time."""
        asked = []
        for client, blocks in jobs.items():
            sources = [self._source(client, block, version) for block in blocks]
            asked.append(self._begin(client, "dump", self._ids(blocks), sources))
        self._record(*[
            Step(
                client, "dump", tuple(blocks),
                self._statuses(self._finish(client, one), blocks, "ok"), version,
            )
            for (client, blocks), one in zip(jobs.items(), asked, strict=True)
        ])
        for client in jobs:
            self._clients[client].clear()

    def commit(self, client: int, blocks: Sequence[int]) -> None:
        """Commit blocks, if that is something the store knows."""
        if self.history.adapter.commits:
            self._call(client, "commit", blocks, self._ids(blocks))

    def store(self, client: int, blocks: Sequence[int], version: int = 0) -> None:
        """Dump, and commit what was dumped without an error."""
        self.dump(client, blocks, version)
        step = self.history.steps[-1]
        dumped = [block for index, block in enumerate(blocks) if step.of(index).kind == "ok"]
        if dumped or not blocks:
            self.commit(client, dumped)

    def lookup(self, client: int, blocks: Sequence[int]) -> None:
        """Ask for blocks."""
        reply = self._finish(client, self._begin(client, "lookup", self._ids(blocks)))
        statuses = self._statuses(reply, blocks, "hit", "miss")
        self._record(Step(client, "lookup", tuple(blocks), statuses))

    def load(self, client: int, blocks: Sequence[int]) -> None:
        """Load blocks."""
        self.load_together({client: blocks})

    def load_together(self, jobs: Mapping[int, Sequence[int]]) -> None:
        """Clients load blocks, all at the same time."""
        asked, targets = [], []
        for client, blocks in jobs.items():
            targets.append([self._target(client, block) for block in blocks])
            asked.append(self._begin(client, "load", self._ids(blocks), targets[-1]))
        steps = []
        for (client, blocks), one, filled in zip(jobs.items(), asked, targets, strict=True):
            statuses = self._statuses(self._finish(client, one), blocks, "hit", "miss")
            if len(statuses) == len(blocks):
                statuses = tuple(map(self._with_bytes, statuses, blocks, filled))
            steps.append(Step(client, "load", tuple(blocks), statuses))
        self._record(*steps)
        for client in jobs:
            self._clients[client].clear()

    def close(self, client: int) -> None:
        """Close the store and end the client."""
        self._call(client, "close", ())
        self._clients[client].close()

    def kill(self, client: int) -> None:
        """SIGKILL."""
        self._clients[client].kill()
        self._record(Step(client, "kill", (), ()))

    def ends(self, client: int, method: str, *values: Any) -> None:
        """Call a method of the adapter after which the client may end by itself at any time."""
        self._call(client, method, (), *values)
        self._ending.add(client)

    def cut(self, *, log_flushed: bool = False, after: float = 0.0) -> None:
        """Cut the power: every client is gone, what is not durable lost; then the disk is there again."""
        assert isinstance(self._disk, PowerCut)
        self._disk.cut(log_flushed=log_flushed, after=after)
        self.restore()

    def restore(self) -> None:
        """Every client ends, and the disk starts again after its power was cut."""
        assert isinstance(self._disk, PowerCut)
        for client in self._clients:
            client.close()
        self._disk.restore()
        self._record(Step(-1, "power cut", (), ()))

    def shortage(self, client: int, kind: Shortage, room: int) -> None:
        """From now on there is room for so many bytes (on the disk, or in any file of the client), or
        for that many descriptors more."""
        if kind == "disk" and isinstance(self._disk, SmallDisk):
            used = os.statvfs(self._disk.folder)
            self._disk.resize((used.f_blocks - used.f_bfree) * used.f_frsize + room)
            self._record(Step(-1, f"shortage: {room} bytes are free", (), ()))
            return
        pid = self._clients[client].pid
        which = resource.RLIMIT_NOFILE if kind == "descriptors" else resource.RLIMIT_FSIZE
        limit = len(os.listdir(f"/proc/{pid}/fd")) + room if kind == "descriptors" else room
        old = resource.prlimit(pid, which)
        self._limited.append((pid, which, old))
        resource.prlimit(pid, which, (limit, old[1]))
        told = f"{room} descriptors more" if kind == "descriptors" else f"{room} bytes a file"
        self._record(Step(-1, f"shortage: {told}", (), ()))

    def relief(self) -> None:
        """The shortage is over."""
        if isinstance(self._disk, SmallDisk):
            self._disk.resize(ROOM)
        for pid, which, old in self._limited:
            resource.prlimit(pid, which, old)
        self._limited.clear()
        self._record(Step(-1, "relief", (), ()))

    def kill_in_dump(self, client: int, blocks: Sequence[int], after: float) -> None:
        """SIGKILL, `after` so many seconds of a dump."""
        self._cut_off(client, blocks)
        self._clients[client].kill(after)
        self._record(Step(client, "kill", (), ()))

    def cut_in_dump(
        self, client: int, blocks: Sequence[int], after: float, *, log_flushed: bool = False
    ) -> None:
        """A power cut, `after` so many seconds of a dump."""
        self._cut_off(client, blocks)
        self.cut(log_flushed=log_flushed, after=after)

    def _cut_off(self, client: int, blocks: Sequence[int]) -> None:
        """Begin a dump that nobody waits for."""
        sources = [self._source(client, block, 0) for block in blocks]
        if self._begin(client, "dump", self._ids(blocks), sources) is None:
            self._record(Step(client, "dump", tuple(blocks), (Status("killed"),)))

    def damage(self, kind: Damage, which: int, at: int) -> None:
        """Change file number `which` (in name order), `at` thousandths of its length from its start."""
        told = damaged(self.folder if self._disk is None else self._disk.folder, kind, which, at)
        self._record(Step(-1, f"{kind.replace('_', ' ')}: {told}", (), ()))

    def _source(self, client: int, block: int, version: int) -> torch.Tensor:
        data = self.history.data(block, version)
        tensor = self._clients[client].tensor((len(data),), shift=self._shifts[0])
        tensor.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else tensor)
        self._sources[block, version] = tensor.data_ptr() % 512
        return tensor

    def _target(self, client: int, block: int) -> torch.Tensor:
        size = len(self.history.data(block))
        return self._clients[client].tensor((size,), shift=self._shifts[1]).fill_(POISON)

    def _with_bytes(self, status: Status, block: int, target: torch.Tensor) -> Status:
        if status.kind != "hit":
            return status
        at = (self._sources.get((block, 0), -1), target.data_ptr() % 512)
        return Status("hit", "", target.numpy().tobytes(), at)

    def _ids(self, blocks: Sequence[int]) -> list[bytes]:
        return [block_id(block) for block in blocks]

    def _call(self, client: int, operation: str, blocks: Sequence[int], *values: Any) -> None:
        reply = self._finish(client, self._begin(client, operation, *values))
        if isinstance(reply, Answer):
            reply = Answer()  # it means nothing
        self._record(Step(client, operation, tuple(blocks), self._statuses(reply, blocks, "ok")))

    def _begin(self, client: int, operation: str, *values: Any) -> UsageError | None:
        try:
            self._clients[client].begin(operation, *values, within=self.history.adapter.deadline)
        except UsageError as error:
            return error
        return None

    def _finish(self, client: int, problem: UsageError | None) -> _Reply:
        if problem is not None:
            return problem
        try:
            reply = self._clients[client].finish()
        except UsageError as error:
            return error
        return "killed" if isinstance(reply, Crashed) and client in self._ending else reply

    def _statuses(
        self, reply: _Reply, blocks: Sequence[int], good: Literal["ok", "hit"],
        bad: Literal["miss"] | None = None,
    ) -> tuple[Status, ...]:
        """A status a block, or a single one of the whole call."""
        if reply == "killed":
            return (Status("killed"),)
        if isinstance(reply, UsageError):
            return (Status("misuse", str(reply)),)
        if isinstance(reply, Failed):
            return (Status("error", str(reply)),)
        if isinstance(reply, Expired):
            return (Status("timeout", str(reply)),)
        if isinstance(reply, Crashed):
            return (Status("crash", str(reply)),)
        value = reply.value
        if value is None and bad is None:
            return tuple(Status(good) for _ in blocks) or (Status(good),)
        if not isinstance(value, list) or len(value) != len(blocks):
            told = f"answered {value!r:.80}; allowed a list of {len(blocks)} statuses"
            return (Status("misuse", told),)
        made = []
        for index, one in enumerate(value):
            if one is True:
                made.append(Status(good))
            elif one is False and bad is not None:
                made.append(Status(bad))
            elif isinstance(one, str) and one:
                made.append(Status("error", one))
            else:
                allowed = "True, False or a text" if bad else "True or a text"
                return (Status("misuse", f"status {index} is {one!r:.80}; allowed {allowed}"),)
        return tuple(made)

    def _record(self, *steps: Step) -> None:
        self.history.steps.extend(steps)
        if any(status.kind in ENDS for step in steps for status in step.statuses):
            raise Over


def missing(count: int) -> list[int]:
    """Numbers of blocks that nobody dumps."""
    return list(range(MISSING, MISSING + count))


def damaged(folder: str, kind: Damage, which: int, at: int) -> str:
    """Damage one file that is not empty (two are swapped); what was done, in words."""
    paths = sorted(
        path for root, _, names in os.walk(folder) for name in names
        if os.path.isfile(path := os.path.join(root, name)) and os.path.getsize(path)
    )
    if not paths or (kind == "swapped" and len(paths) < 2):
        return "there is no such file"
    path = paths[which % len(paths)]
    name, size = os.path.relpath(path, folder), os.path.getsize(path)
    place = min(size - 1, size * at // 1000)
    if kind == "deleted":
        os.unlink(path)
        return name
    if kind == "truncated":
        os.truncate(path, place)
        return f"{name} from {size} to {place} bytes"
    if kind == "swapped":
        other = paths[(which + 1) % len(paths)]
        aside = f"{path}.aside"
        os.rename(path, aside)
        os.rename(other, path)
        os.rename(aside, other)
        return f"{name} and {os.path.relpath(other, folder)}"
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << at % 8]))
    return f"bit {at % 8} of byte {place} of {name}, which has {size}"
