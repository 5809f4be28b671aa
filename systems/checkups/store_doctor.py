"""The check lists of the storage guide, as `rankfault doctor store CONFIG` runs them.

CONFIG holds the store's keys and, if wanted, `connector`. Wrong keys and types are no configuration and
raise; what can be wrong with a right one is a check. Everything is done in a folder of its own beside the
blocks (same disk, removed again), with one shard and a pool of its own. Not examined: tensors on a
GPU where there is none; what other programs do to the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from harness import Check, Doctor, UsageError
from systems.checkups.store_probes import (
    BLOCK_BYTES,
    BLOCKS,
    HEALTHY_MS,
    block_ids,
    lookup_ms,
    opened,
    own_folder,
    rate,
    require_done,
    speeds,
)
from systems.store import UcmConnectorFactory
from systems.store.config import FOREIGN, StoreConfig, configured
from systems.store.errors import ConfigError, StorageUnusable, StoreError
from systems.store.front import BlockStore
from systems.store.piece import page_aligned
from systems.store.shared_pool import SharedPool

CONNECTOR = "UcmPipelineStore"
TRANSFER_BYTES = 100 * BLOCK_BYTES
LOOKUPS = 20
SLOW_MB_S = 100.0
LEAK_BYTES = 32 << 20
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int8)
CHILD = """
import json, sys
from systems.checkups.store_probes import block_ids, opened
with opened(json.loads(sys.argv[1])) as store:
    print(sum(store.lookup(block_ids(8, "stable"))))
"""
Ran = Iterator[Check]


def examine(given: Mapping[str, Any]) -> list[Check]:
    """Every check that can be made; those that need what failed are left out."""
    values = dict(given)
    connector = values.pop("connector", CONNECTOR)
    _require_types(values, connector)
    checks = [*_names(values, connector)]
    if _failed(checks):
        return checks
    config = _typed(values, checks)
    if config is None:
        return checks
    checks += _path(config)
    if _failed(checks):
        return checks
    try:
        with own_folder(_existing(config.storage_path)) as folder:
            checks += _in(folder, config, connector)
    except OSError as error:  # read-only although the mode says otherwise; memory for huge blocks
        text = f"{error.filename or config.storage_path}: {error.strerror or error}"
        checks.append(Check("machine", "fail", text, "look at the disk, its mount and the memory"))
    return checks


def _failed(checks: list[Check]) -> bool:
    return any(check.verdict == "fail" for check in checks)


def _require_types(values: dict[str, Any], connector: Any) -> None:
    """Keys and types are right, or UsageError: values that are names or paths are checks of their own."""
    if not isinstance(connector, str):
        raise UsageError(f"connector: given {connector!r}; allowed a string; nearest: {CONNECTOR!r}")
    usual = {"storage_path": "/", "store_pipeline": "Cache|Posix"}
    trial = {
        name: usual[name] if name in usual and isinstance(value, str) else value
        for name, value in values.items()
    }
    try:
        configured(trial)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _names(values: dict[str, Any], connector: str) -> Ran:
    known = ", ".join(sorted(UcmConnectorFactory._registry))
    try:
        UcmConnectorFactory.require_known(connector)
    except StoreError as error:
        yield Check("connector", "fail", str(error), f"name one of {known}")
    else:
        yield Check("connector", "ok", connector)
    pipeline = values.get("store_pipeline", "Cache|Posix")
    try:
        configured({"storage_path": "/", "store_pipeline": pipeline})
    except ConfigError as error:
        yield Check("pipeline", "fail", str(error), "correct store_pipeline")
    else:
        yield Check("pipeline", "ok", pipeline)
    foreign = sorted(name for name in values if name in FOREIGN)
    if foreign:
        text = f"{', '.join(foreign)}: of another store, without a meaning here"
        yield Check("keys", "warn", text, "remove them, or see which key of this store says the same")


def _typed(values: dict[str, Any], checks: list[Check]) -> StoreConfig | None:
    try:
        return configured(values)
    except ConfigError as error:
        checks.append(Check("values", "fail", str(error), "correct the value"))
        return None


def _existing(path: str) -> str:
    """The nearest folder of `path` that is there."""
    found = Path(path)
    while not found.exists() and found != found.parent:
        found = found.parent
    return str(found)


def _path(config: StoreConfig) -> Ran:
    path = config.storage_path
    there = _existing(path)
    if not os.path.isdir(there):
        yield Check("storage path", "fail", f"{there} is no folder", "name a folder")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield Check("storage path", "fail", f"{there} is not writable", "change its owner or its mode")
        return
    if there == path.rstrip("/") or there == path:
        yield Check("storage path", "ok", f"{path} is a folder and writable")
    else:
        text = f"{path} is not there; the first store makes it below {there}"
        yield Check("storage path", "warn", text, "no lookup hits before; is the path right?")
    yield _space(config, there)


def _space(config: StoreConfig, folder: str) -> Check:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    text = f"{free / 1e9:.1f} GB free"
    if free < 2 * TRANSFER_BYTES:
        return Check("space", "fail", text, f"free {2 * TRANSFER_BYTES / 1e6:.0f} MB or more")
    if not config.capacity_bytes:
        return Check("space", "ok", f"{text}; nothing is ever collected (capacity_bytes 0)")
    if config.capacity_bytes > found.f_blocks * found.f_frsize:
        return Check("space", "warn", f"{text}; capacity_bytes {config.capacity_bytes} is more than"
                     " the disk has", "lower capacity_bytes")  # fmt: skip
    block = config.block_size or BLOCK_BYTES
    if config.capacity_bytes < block:
        return Check("space", "warn", f"{text}; capacity_bytes {config.capacity_bytes} has no room for a"
                     f" block of {block} bytes: its dump fails", "raise capacity_bytes")  # fmt: skip
    return Check("space", "ok", f"{text}; capacity_bytes {config.capacity_bytes}")


def _in(folder: str, config: StoreConfig, connector: str) -> Ran:
    """The checks that need a store."""
    values: dict[str, Any] = {name: getattr(config, name) for name in config.__struct_fields__}
    values |= {"storage_path": folder, "shards": 1, "cache_shared": "", "capacity_bytes": 0}
    yield _direct(values)
    if config.cache_shared:
        yield _shared(config)
    before = _descriptors()
    try:
        with opened(values, connector) as store:
            for name, check in _checks():
                yield _guarded(name, check, store)
    except StoreError as error:
        yield Check("store", "fail", str(error), "correct what it says")
        return
    yield _leaks(folder, before)


def _checks() -> tuple[tuple[str, Callable[[BlockStore], Check]], ...]:
    return (
        ("device", _device),
        ("alignment", _alignment),
        ("round trip", _round_trip),
        ("block ids", _stable),
        ("lookup latency", _latency),
        ("transfer speed", _transfer),
        ("memory", _memory),
    )


def _guarded(name: str, check: Callable[[BlockStore], Check], store: BlockStore) -> Check:
    """The store's own complaint fails the check in which it came."""
    try:
        return check(store)
    except StoreError as error:
        return Check(name, "fail", str(error), "see the log: UNIFIED_CACHE_LOG_LEVEL=debug")


def _direct(values: dict[str, Any]) -> Check:
    takes = []
    for unit in (512, 4096):
        trial = {**values, "io_direct": True, "alignment": unit, "strict_alignment": False}
        try:
            with opened({**trial, "store_pipeline": "Posix"}):
                takes.append(unit)
        except StorageUnusable:
            continue
    text = f"the disk takes direct I/O of {' and '.join(map(str, takes)) or 'no alignment'}"
    if values["io_direct"] and values["alignment"] not in takes:
        remedy = f"set alignment {takes[0]}" if takes else "set io_direct False"
        return Check("direct I/O", "fail", f"{text}; configured {values['alignment']}", remedy)
    return Check("direct I/O", "ok", f"{text}; {'on' if values['io_direct'] else 'off'}")


def _shared(config: StoreConfig) -> Check:
    try:
        SharedPool(config).close()
    except StoreError as error:
        return Check("shared pool", "fail", str(error), "give all stores of the pool the same values")
    return Check("shared pool", "ok", f"{config.cache_shared} can be used")


def _device(store: BlockStore) -> Check:
    if torch.cuda.is_available():
        return Check("device", "ok", f"tensors on CPU and {torch.cuda.device_count()} CUDA devices")
    return Check("device", "ok", "tensors on CPU; no CUDA device is here")


def _alignment(store: BlockStore) -> Check:
    config = store.config
    length = config.block_size or BLOCK_BYTES
    wrong = torch.empty(length, dtype=torch.uint8).data_ptr() % config.alignment
    odd = length % config.alignment
    if "Cache" in store.stages and not config.strict_alignment:
        wrong = 0  # what reaches the disk is the pool's memory
    if not config.io_direct:
        return Check("alignment", "ok", "buffered I/O takes any address and length")
    if not wrong and not odd:
        text = f"the memory and blocks of {length} bytes fit {config.alignment}"
        return Check("alignment", "ok", text)
    what = f"torch's memory is {wrong} bytes off" if wrong else f"a block's last {odd} bytes do not fit"
    if config.strict_alignment:
        text = f"{what}: strict_alignment refuses it"
        return Check("alignment", "fail", text, "align the memory, or set strict_alignment False")
    return Check("alignment", "warn", f"{what}: copied through a bounce buffer, slower",
                 "dump from and load into memory that begins on a page")  # fmt: skip


def _round_trip(store: BlockStore) -> Check:
    length = store.config.block_size or BLOCK_BYTES
    done = []
    for dtype in DTYPES:
        if length % dtype.itemsize:
            continue
        source, target = page_aligned(length), page_aligned(length)
        source.random_(0, 256)
        ids = block_ids(1, str(dtype))
        require_done(store, store.dump(ids, 0, source.view(dtype)))
        if store.commit(ids) != [0] or store.lookup(ids) != [True]:
            return Check("round trip", "fail", f"{dtype}: committed and not found", "see the log")
        require_done(store, store.load(ids, 0, target.view(dtype)))
        if not torch.equal(source, target):
            return Check("round trip", "fail", f"{dtype}: other bytes than were dumped", "test the disk")
        done.append(str(dtype).removeprefix("torch."))
    return Check("round trip", "ok", f"{', '.join(done)}: the bytes that were dumped")


def _stable(store: BlockStore) -> Check:
    ids = block_ids(8, "stable")
    length = store.config.block_size or 64
    require_done(store, store.dump(ids, 0, [page_aligned(length) for _ in ids]))
    store.commit(ids)
    config = {"storage_path": store.storage_path, "store_pipeline": "Posix"}
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    told = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(config)],
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if told.stdout.strip() == str(len(ids)):
        return Check("block ids", "ok", "another process with another hash seed finds all 8 blocks")
    what = told.stderr.strip().splitlines()[-1:] or [f"found {told.stdout.strip()} of {len(ids)}"]
    remedy = "look at the disk's caching, and how the folder is mounted"
    return Check("block ids", "fail", f"another process: {what[0]}", remedy)


def _latency(store: BlockStore) -> Check:
    mean = lookup_ms(store, LOOKUPS)
    text = f"lookup of 1,000 ids takes {mean:.2f} ms"
    if mean < HEALTHY_MS:
        return Check("lookup latency", "ok", f"{text}; under {HEALTHY_MS:.0f} is healthy")
    remedy = "the disk is slow or remote: keep its entries cached, or take another"
    return Check("lookup latency", "warn", text, remedy)


def _transfer(store: BlockStore) -> Check:
    length = store.config.block_size or BLOCK_BYTES
    found = speeds(store, _blocks(length), length)
    dump, load = rate(found.bytes, found.dump), rate(found.bytes, found.load)
    text = f"dump {dump} MB/s, load {load} MB/s"
    if min(dump, load) < SLOW_MB_S:
        remedy = "larger blocks, direct I/O, durability none, or a faster disk"
        return Check("transfer speed", "warn", text, remedy)
    return Check("transfer speed", "ok", text)


def _blocks(length: int) -> int:
    """As many blocks as make 100 MB, at most 100: small ones say enough with fewer bytes."""
    return min(BLOCKS, max(1, TRANSFER_BYTES // length))


def _memory(store: BlockStore) -> Check:
    length = store.config.block_size or BLOCK_BYTES
    ids = block_ids(_blocks(length), "speed")
    target = page_aligned(len(ids) * length).view(len(ids), length)
    require_done(store, store.load(ids, 0, target))
    before = _resident()
    for _ in range(5):
        require_done(store, store.load(ids, 0, target))
    grown = _resident() - before
    size = len(ids) * length / 1e6
    text = f"five more loads of {size:.0f} MB took {max(grown, 0) / 1e6:.1f} MB of memory"
    if grown > LEAK_BYTES:
        return Check("memory", "warn", text, "report it")
    return Check("memory", "ok", text)


def _leaks(folder: str, before: int) -> Check:
    left = [str(path) for path in Path(folder).rglob("*.tmp")]
    more = _descriptors() - before
    if left or more > 0:
        text = f"{len(left)} temporary files and {max(more, 0)} descriptors are left after close"
        return Check("leaks", "fail", text, "report it")
    return Check("leaks", "ok", "no descriptor and no temporary file is left after close")


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


STORE = Doctor("store", examine)
