"""The store's configuration: one typed value, made from the dict that the documented interface takes.

Every wrong value is one line: the field, what was given, what is allowed, the nearest allowed value.
Keys that UCM's own stores know and this one has no use for are accepted with a warning, so that a
configuration written for UCM works; any other unknown key is an error with the nearest key.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from systems.store.errors import ConfigError
from systems.store.log import STORE

STAGES = ("Cache", "Posix")
PIPELINES = ("Posix", "Cache|Posix")
GIB = 1 << 30
TIMEOUT_MAX = 86_400_000  # ms: a day


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a store is told; lengths in bytes, times in the unit of the name."""

    storage_path: str
    store_pipeline: str = "Cache|Posix"
    block_size: int = 0  # of one tensor of one (id, shard); 0: each block has its own
    shards: int = 1  # files that make a block whole; `offset` of dump and load is the shard index
    io_direct: bool = False
    alignment: int = 4096  # what direct I/O asks of addresses and lengths
    strict_alignment: bool = False  # refuse what does not fit instead of copying it
    durability: str = "flush"
    cache_bytes: int = 64 << 20
    cache_shared: str = ""  # the name of a pool that stores of this host share; "": a pool of its own
    workers: int = 4
    capacity_bytes: int = 0  # 0: no garbage collection
    timeout_ms: int = 30_000  # 0: without limit
    residue_seconds: int = 3600  # temporary files not touched for so long are reclaimed
    writer: str = ""  # part of temporary names; "": host and process number


class Rule(NamedTuple):
    """What one field allows: a type, and either choices or bounds."""

    kind: type
    choices: tuple[Any, ...] = ()
    least: int = 0
    most: int = 0

    @property
    def allowed(self) -> str:
        """In words."""
        if self.choices:
            return " or ".join(repr(choice) for choice in self.choices)
        if self.kind is int:
            return f"an integer from {self.least} to {self.most}"
        return "True or False" if self.kind is bool else "a string"

    def nearest(self, value: object) -> Any:
        """The allowed value that comes nearest to `value`, or None where nothing is near."""
        number = _number(value)
        if self.choices and isinstance(self.choices[0], str):
            return _near(str(value), self.choices) if isinstance(value, str) else None
        if self.choices:
            return None if number is None else min(self.choices, key=lambda one: abs(one - number))
        if self.kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())
        if self.kind is int and number is not None:
            return int(min(max(number, self.least), self.most))
        return None

    def holds(self, value: object) -> bool:
        """Whether `value` is allowed."""
        if type(value) is not self.kind:
            return False
        if self.choices:
            return value in self.choices
        return not isinstance(value, int) or self.kind is bool or self.least <= value <= self.most


RULES = {
    "storage_path": Rule(str),
    "store_pipeline": Rule(str, PIPELINES),
    "block_size": Rule(int, least=0, most=64 * GIB),
    "shards": Rule(int, least=1, most=65_535),
    "io_direct": Rule(bool),
    "alignment": Rule(int, (512, 4096)),
    "strict_alignment": Rule(bool),
    "durability": Rule(str, ("none", "flush", "fsync")),
    "cache_bytes": Rule(int, least=4096, most=4096 * GIB),
    "cache_shared": Rule(str),
    "workers": Rule(int, least=1, most=256),
    "capacity_bytes": Rule(int, least=0, most=1 << 60),
    "timeout_ms": Rule(int, least=0, most=TIMEOUT_MAX),
    "residue_seconds": Rule(int, least=1, most=31_536_000),
    "writer": Rule(str),
}
# UCM's own keys without a meaning here: first and second generation, Posix and Cache.
FOREIGN = frozenset(
    (
        "storage_backends",
        "kv_block_size",
        "role",
        "device",
        "device_id",
        "io_size",
        "use_direct",
        "stream_number",
        "buffer_number",
        "storage_capacity",
        "recycle_enable",
        "recycle_threshold_ratio",
        "unique_id",
        "local_rank_size",
        "use_scatter_gatter",
        "tensor_size",
        "tensor_size_list",
        "shard_size",
        "posix_io_engine",
        "cpu_affinity_cores",
        "share_buffer_enable",
        "posix_data_trans_concurrency",
        "posix_lookup_concurrency",
        "posix_open_concurrency",
        "posix_capacity_gb",
        "posix_commit_concurrency",
        "data_dir_shard_bytes",
        "posix_gc_enable",
        "posix_gc_recycle_percent",
        "posix_gc_concurrency",
        "posix_gc_check_interval_sec",
        "posix_gc_trigger_threshold_ratio",
        "posix_gc_max_recycle_count_per_shard",
        "posix_gc_shard_sample_ratio",
        "cache_buffer_capacity_gb",
        "waiting_queue_depth",
        "running_queue_depth",
        "cache_stream_number",
    )
)


def configured(given: Mapping[str, Any] | StoreConfig) -> StoreConfig:
    """The typed configuration, or ConfigError in one line."""
    values = msgspec.structs.asdict(given) if isinstance(given, StoreConfig) else given
    if not isinstance(values, Mapping):
        raise ConfigError(f"config: given {values!r}; allowed a dict of {', '.join(RULES)}")
    known = {}
    for name, value in values.items():
        if name in RULES:
            known[name] = _checked(str(name), value)
        elif name in FOREIGN:
            STORE.warning("configuration key %s has no meaning here and is ignored", name)
        else:
            near = _near(str(name), tuple(RULES))
            raise ConfigError(f"{name}: given {value!r}; no such key; nearest: {near}")
    if "storage_path" not in known:
        raise ConfigError("storage_path: not given; allowed an absolute path of a folder")
    config = StoreConfig(**known)
    _fits_together(config)
    return config


def _checked(name: str, value: Any) -> Any:
    rule = RULES[name]
    if name == "store_pipeline" and isinstance(value, str):
        return _pipeline(value)
    if name in ("writer", "cache_shared") and isinstance(value, str) and not _is_part_of_a_name(value):
        raise ConfigError(
            f"{name}: given {value!r}; allowed up to 64 bytes of printable characters without '/' and '.'"
        )
    if not rule.holds(value):
        near = rule.nearest(value)
        told = "" if near is None else f"; nearest: {near!r}"
        raise ConfigError(f"{name}: given {value!r}; allowed {rule.allowed}{told}")
    return value


def _is_part_of_a_name(value: str) -> bool:
    """Whether a file's name may contain it."""
    short = _is_a_name(value) and len(os.fsencode(value)) <= 64
    return short and value.isprintable() and not any(sign in value for sign in "/.")


def _is_a_name(value: str) -> bool:
    """Whether the system can be given it as (part of) a path at all."""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _pipeline(value: str) -> str:
    stages = [stage.strip() for stage in value.split("|")]
    for stage in stages:
        if stage not in STAGES:
            told = f"{value!r}, where {stage!r} is no stage"
            break
    else:
        told = repr(value)
        if "|".join(stages) in PIPELINES:
            return "|".join(stages)
    near = "Cache|Posix" if "Cache" in [_near(stage, STAGES) for stage in stages] else "Posix"
    allowed = " or ".join(map(repr, PIPELINES))
    raise ConfigError(f"store_pipeline: given {told}; allowed {allowed}; nearest: {near!r}")


def _fits_together(config: StoreConfig) -> None:
    path = config.storage_path
    if not path.startswith("/") or not _is_a_name(path):
        near = "/" + "".join(sign for sign in path if sign != "\0" and _is_a_name(sign)).lstrip("/")
        raise ConfigError(f"storage_path: given {path!r}; allowed an absolute path; nearest: {near!r}")
    if config.strict_alignment and not config.io_direct:
        raise ConfigError(
            "strict_alignment: given True; allowed only with io_direct True; nearest: False"
        )
    if config.cache_shared:
        _can_share(config)
    size, unit = config.block_size, config.alignment
    if 0 < config.capacity_bytes < size:
        raise ConfigError(
            f"capacity_bytes: given {config.capacity_bytes}; allowed at least block_size, or 0 for no"
            f" limit; nearest: {size}"
        )
    if config.strict_alignment and size % unit:
        rounded = (size + unit - 1) // unit * unit
        raise ConfigError(
            f"block_size: given {size}; allowed a multiple of {unit} here; nearest: {rounded}"
        )


def _can_share(config: StoreConfig) -> None:
    if config.store_pipeline == "Posix":
        raise ConfigError(
            f"cache_shared: given {config.cache_shared!r}; allowed only with a Cache stage; nearest: ''"
        )
    if not config.block_size:
        raise ConfigError(
            "block_size: given 0; allowed with cache_shared only the size of every block: its buffers are"
            " of one size"
        )
    if config.cache_bytes < config.block_size:
        raise ConfigError(
            f"cache_bytes: given {config.cache_bytes}; allowed with cache_shared at least block_size;"
            f" nearest: {config.block_size}"
        )


def _near(name: str, names: tuple[str, ...]) -> str:
    lowered = {one.lower(): one for one in reversed(names)}
    return lowered[difflib.get_close_matches(name.lower(), lowered, 1, 0.0)[0]]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if number != number else number
