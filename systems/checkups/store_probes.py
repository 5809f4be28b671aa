"""The storage guide's probes: lookup latency and transfer speed of a store in a folder of their own.

`rankfault bench store` prints them; the doctor judges them. Speeds are MB/s of 10**6 bytes, dump with its
commit. A load right after its dump comes from the page cache, or from the pool, unless I/O is direct.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness import Bench, UsageError
from systems.store import UcmConnectorFactory
from systems.store.errors import StoreError
from systems.store.front import BlockStore
from systems.store.piece import page_aligned
from systems.store.real import RealClock

LOOKUP_IDS, LOOKUPS = 1000, 100
BLOCKS, BLOCK_BYTES = 100, 1 << 20
HEALTHY_MS = 10.0


class Speeds(NamedTuple):
    """Seconds of a dump with its commit and of a load, and the bytes moved by each."""

    dump: float
    load: float
    bytes: int


def block_ids(count: int, salt: str = "") -> list[bytes]:
    """Ids as the guide makes them: md5 of the chain of contents before."""
    found, last = [], salt.encode()
    for number in range(count):
        last = hashlib.md5(last + b"%d" % number).digest()
        found.append(last)
    return found


@contextmanager
def own_folder(parent: str | None) -> Iterator[str]:
    """A fresh folder below `parent`, or in the temporary folder; removed with all that is in it."""
    folder = tempfile.mkdtemp(prefix="rankfault-store-", dir=parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def opened(config: Mapping[str, Any], connector: str = "UcmPipelineStore") -> Iterator[BlockStore]:
    """A store; closed at the end."""
    store = UcmConnectorFactory.create_connector(connector, config)
    try:
        yield store
    finally:
        store.close()


def lookup_ms(store: BlockStore, lookups: int = LOOKUPS) -> float:
    """The mean of `lookups` lookups of 1,000 ids that miss, in ms."""
    clock, ids = RealClock(), block_ids(LOOKUP_IDS)
    started = clock.now()
    for _ in range(lookups):
        store.lookup(ids)
    return (clock.now() - started) * 1000 / lookups


def speeds(store: BlockStore, blocks: int, length: int) -> Speeds:
    """Of `blocks` blocks of `length` bytes, dumped, committed and loaded. Raises StoreError."""
    clock, ids = RealClock(), block_ids(blocks, "speed")
    source, target = (page_aligned(blocks * length).view(blocks, length) for _ in range(2))
    source.random_(0, 256)
    target.fill_(1)  # touched, as a running program's memory is
    begun = clock.now()
    require_done(store, store.dump(ids, 0, source))
    for code in store.commit(ids):
        if code:
            raise StoreError(f"a commit ended with {code}")
    between = clock.now()
    require_done(store, store.load(ids, 0, target))
    ended = clock.now()
    if not torch.equal(source, target):
        raise StoreError("what was loaded is not what was dumped")
    return Speeds(between - begun, ended - between, blocks * length)


def require_done(store: BlockStore, task: Any) -> None:
    """Wait; StoreError with the first block's reason where it failed."""
    code = store.wait(task)
    if code:
        failure = store.error(task)
        raise StoreError(failure.text if failure else f"not done in time (code {code})")


def measure(
    *, path: Path | None = None, pipeline: str | None = None, direct: bool = False
) -> list[dict[str, Any]]:
    """The guide's probes as figures."""
    try:
        with own_folder(str(path) if path else None) as folder:
            config = {
                "storage_path": folder, "store_pipeline": pipeline or "Cache|Posix", "io_direct": direct,
                "cache_bytes": BLOCKS * BLOCK_BYTES,
            }  # fmt: skip
            with opened(config) as store:
                mean = round(lookup_ms(store), 2)
                found = speeds(store, BLOCKS, BLOCK_BYTES)
    except StoreError as error:
        raise UsageError(f"bench store: {error}") from None
    except OSError as error:
        raise UsageError(f"bench store: {path}: {error.strerror or error}") from None
    lookups = f"lookup of {LOOKUP_IDS:,} ids, mean of {LOOKUPS}"
    return [
        _figure(lookups, mean, "ms", "< 10", mean < HEALTHY_MS),
        _figure(f"dump of {BLOCKS} blocks of 1 MiB", rate(found.bytes, found.dump), "MB/s"),
        _figure(f"load of {BLOCKS} blocks of 1 MiB", rate(found.bytes, found.load), "MB/s"),
    ]


def rate(count: int, seconds: float) -> float:
    """MB/s."""
    return round(count / 1e6 / max(seconds, 1e-9), 1)


def _figure(
    name: str, value: float, unit: str, goal: str = "", met: bool | None = None  # noqa: FBT001
) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "goal": goal, "met": met}


STORE = Bench("store", measure)
