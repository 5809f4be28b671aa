"""The embedded store against a bare loop of the same disk operations, a plain read, and os.stat.

The bare loop is a recording: what one dump or load of the store asked of its disk, in order, is repeated
by one thread on files of its own, from and into the same memory. Store and peers take turns in one run; a
figure is the median of the turns' ratios. Buffered files are in the page cache on both sides. The pool
of Cache|Posix holds other blocks before a cold load; that its memory is touched for the first time is a
figure of its own, because a store touches it once and serves for days.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import figure
from systems.store import UcmConnectorFactory
from systems.store.piece import page_aligned, view_of
from systems.store.real import RealDisk

BLOCKS, LENGTH = 64, 1 << 20
IDS = [hashlib.md5(b"%d" % number).digest() for number in range(1000)]
RECORDED = ("open", "close", "pread", "pwrite", "fsync", "truncate", "rename", "exists")
Recorded = tuple[str, tuple[Any, ...], Any]


class Recording(RealDisk):
    """Notes the operations that succeed, with arguments and result."""

    def __init__(self) -> None:
        self.done: list[Recorded] = []


def _noted(name: str) -> Callable[..., Any]:
    real = getattr(RealDisk, name)

    def operate(self: Recording, *values: Any) -> Any:
        result = real(self, *values)
        self.done.append((name, values, result))
        return result

    return operate


for _name in RECORDED:
    setattr(Recording, _name, _noted(_name))


def bare(recorded: list[Recorded], old: str, new: str) -> Callable[[], None]:
    """The recorded system calls, for files under `new` instead of `old`."""
    fds: dict[int, int] = {}  # by the recording's descriptors, which are used again and again
    calls: list[Callable[[], Any]] = []

    def opened(path: str, flags: int, told: int) -> None:
        fds[told] = os.open(path, flags | os.O_CLOEXEC, 0o644)

    for name, values, result in recorded:
        values = tuple(v.replace(old, new, 1) if isinstance(v, str) else v for v in values)
        for path in (v for v in values if isinstance(v, str)):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        if name == "open":
            calls.append(partial(opened, *values[:2], result))
        elif name in ("rename", "exists"):
            calls.append(partial({"rename": os.replace, "exists": os.stat}[name], *values))
        else:
            calls.append(_on_descriptor(name, fds, values))

    def run() -> None:
        for call in calls:
            call()

    return run


def _on_descriptor(name: str, fds: dict[int, int], values: tuple[Any, ...]) -> Callable[[], Any]:
    told, rest = values[0], values[1:]
    if name in ("pread", "pwrite"):
        move = os.preadv if name == "pread" else os.pwritev
        view, at = rest
        return lambda: move(fds[told], [view], at)
    call = {"close": os.close, "fsync": os.fsync, "truncate": os.ftruncate}[name]
    return lambda: call(fds[told], *rest)


def seconds(work: Callable[[], Any]) -> float:
    """What one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Bench:
    """64 x 1 MiB through one pipeline in one mode, and the peers."""

    def __init__(self, folder: str, source: torch.Tensor, target: torch.Tensor, **config: Any) -> None:
        self.folder, self.source, self.target, self.config = folder, source, target, config
        self.ids, self.others = IDS[:BLOCKS], IDS[BLOCKS : 2 * BLOCKS]
        self.store = self._open(RealDisk())
        self.dump(self.store, self.others)
        self.first = seconds(partial(self.dump, self.store, self.ids))
        disk = Recording()
        self._recording = self._open(disk, workers=1)  # in order; kept: the recorded memory is its pool's
        self.dump(self._recording, self.others)
        begin = len(disk.done)
        self.dump(self._recording, self.ids)
        middle = len(disk.done)
        self.load(self._recording, self.others)
        last = len(disk.done)
        self.load(self._recording, self.ids)
        where = f"{folder}/store", f"{folder}/peer"
        self.bare_dump = bare(disk.done[begin:middle], *where)
        self.bare_load = bare(disk.done[last:], *where)
        self.paths = [v[0] for name, v, _ in disk.done[last:] if name == "open"]
        self.rows = [view_of(row) for row in target]

    def _open(self, disk: RealDisk, **config: Any) -> Any:
        config = {
            "storage_path": f"{self.folder}/store", "cache_bytes": BLOCKS * LENGTH, "block_size": LENGTH,
            **self.config, **config,
        }  # fmt: skip
        return UcmConnectorFactory.create_connector("UcmPipelineStore", config, disk=disk)

    def dump(self, store: Any, ids: list[bytes]) -> None:
        """Dump, wait, commit."""
        assert store.wait(store.dump(ids, 0, self.source)) == 0
        assert store.commit(ids, [True] * len(ids)) == [0] * len(ids)

    def load(self, store: Any, ids: list[bytes]) -> None:
        """Load and wait."""
        assert store.wait(store.load(ids, 0, self.target)) == 0

    def plain_read(self) -> None:
        """Open, one read of the data into the target, close, file by file."""
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if self.config["io_direct"] else 0)
        for path, row in zip(self.paths, self.rows, strict=True):
            fd = os.open(path, flags)
            os.preadv(fd, [row], 4096)
            os.close(fd)

    def turn(self) -> dict[str, float]:
        """Seconds of each, peers beside the store."""
        store = self.store
        found = {
            "bare dump": seconds(self.bare_dump),
            "dump": seconds(partial(self.dump, store, self.ids)),
        }
        self.load(store, self.others)
        found["bare load"] = seconds(self.bare_load)
        found["load"] = seconds(partial(self.load, store, self.ids))
        found["plain read"] = seconds(self.plain_read)
        found["load again"] = seconds(partial(self.load, store, self.ids))
        return found


def _ratio(turns: list[dict[str, float]], peer: str, name: str) -> float:
    return round(median(turn[peer] / turn[name] for turn in turns), 2)


def _transfers(*, full: bool) -> list[dict[str, Any]]:
    source = page_aligned(BLOCKS * LENGTH).view(BLOCKS, LENGTH)
    source.copy_(torch.randint(0, 256, source.shape, dtype=torch.uint8))
    target = page_aligned(BLOCKS * LENGTH).view(BLOCKS, LENGTH).fill_(1)
    found = []
    for pipeline in ("Posix", "Cache|Posix"):
        for direct, durability in ((False, "none"), (False, "flush"), (True, "none")):
            with tempfile.TemporaryDirectory(prefix="rankfault-bench-") as folder:
                mode = {"store_pipeline": pipeline, "io_direct": direct, "durability": durability}
                bench = Bench(folder, source, target, **mode)
                turns = [bench.turn() for _ in range(15 if full else 5)]
            name = f"{pipeline}, {'direct' if direct else 'buffered'}, {durability}"
            against_read = 0.9 if direct else 0.65
            for what, peer, goal in (
                ("dump", "bare dump", 0.8),
                ("load", "bare load", 0.8),
                ("load", "plain read", against_read),
            ):
                ratio = _ratio(turns, peer, what)
                found.append(
                    figure(f"{name}: {what} vs {peer}", ratio, "ratio", f">= {goal}", ratio >= goal)
                )
            if pipeline != "Posix":
                again = _ratio(turns, "plain read", "load again")
                found.append(figure(f"{name}: load again vs plain read", again, "ratio", "", None))
    return found


def _lookups(*, full: bool) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="rankfault-bench-") as folder:
        store = UcmConnectorFactory.create_connector("UcmPipelineStore", {"storage_path": folder})
        store.wait(store.dump(IDS, 0, torch.zeros(len(IDS), 16, dtype=torch.uint8)))
        store.commit(IDS, [True] * len(IDS))
        paths = [str(path) for path in Path(folder).rglob("*.kv")]
        turns = []
        for _ in range(60 if full else 20):
            assert all(store.lookup(IDS))
            bare_seconds = seconds(lambda: list(map(os.stat, paths)))
            turns.append((bare_seconds, seconds(partial(store.lookup, IDS))))
    ratio = round(median(mine / bare for bare, mine in turns), 2)
    mean = round(1000 * sum(mine for _, mine in turns) / len(turns), 2)
    return [
        figure("lookup of 1,000 ids vs 1,000 os.stat", ratio, "ratio", "<= 1.5", ratio <= 1.5),
        figure("lookup of 1,000 ids", mean, "ms", "< 10", mean < 10),
    ]


def _peak() -> int:
    """The most memory that this process had since `_forget_peak`, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM")


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory() -> list[dict[str, Any]]:
    """What loading 64 MiB through a pool of 8 MiB adds to the memory of this process."""
    target = page_aligned(BLOCKS * LENGTH).view(BLOCKS, LENGTH).fill_(1)
    pool, workers = 8 * LENGTH, 4
    with tempfile.TemporaryDirectory(prefix="rankfault-bench-") as folder:
        config = {"storage_path": folder, "cache_bytes": pool, "workers": workers, "io_direct": True}
        ids = IDS[:BLOCKS]
        writer = UcmConnectorFactory.create_connector("UcmPosixStore", {"storage_path": folder})
        writer.wait(writer.dump(ids, 0, target))
        writer.commit(ids, [True] * BLOCKS)
        _forget_peak()
        before = _peak()
        reader = UcmConnectorFactory.create_connector("UcmPipelineStore", config)
        for _ in range(3):
            assert reader.wait(reader.load(ids, 0, target)) == 0
        grown = (_peak() - before) / LENGTH
    bound = (pool + workers * LENGTH) / LENGTH
    name = "memory of loading 64 MiB, pool 8 MiB, bounce buffers 4 MiB"
    return [figure(name, round(grown, 1), "MiB", f"<= {bound:.0f}", grown <= bound + 1)]


def store_ratios(*, full: bool) -> list[dict[str, Any]]:
    """Dump, load and lookup against their peers, and the memory of a load."""
    return [*_memory(), *_transfers(full=full), *_lookups(full=full)]
