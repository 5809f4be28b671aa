"""What a store has to offer to be driven: the adapter, which runs in the subject process.

An adapter says *hit* (True), *miss* (False) or *error* (an exception, or a text as one block's status in
a batch); *timeout* and *crash* are seen from outside. Either the calls for one block (`put`, `get`,
`has`) or those for a batch (`dump`, `load`, `lookup`) are written by hand; the others follow. Block ids
are 16 bytes, tensors are dense uint8 on the CPU, one a block, and may lie anywhere.

The attributes say what the store promises. What it does not promise is not held against it: a scenario
that is only about that is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any, ClassVar, Literal

from harness import UsageError

Status = bool | str
AfterPowerCut = Literal["kept", "whole", "no"]
PAIRS = (("put", "dump"), ("get", "load"), ("has", "lookup"))


class Adapter:
    """Base of every adapter; made without arguments, then opened on a folder.

    several_processes: two processes may have one folder open at the same time.
    survives_kill: what was dumped (and committed) is there after SIGKILL.
    survives_damage: files that are changed from outside give a miss or an error, never wrong bytes.
    survives_restart: what was stored is there for the next process.
    survives_shortage: after a full disk, or too few descriptors, the open store works again; otherwise
    once it is opened anew.
    survives_power_cut: "kept": what was dumped (and committed) is there after a power cut; "whole": it
    may be missing, but never torn; "no": nothing is promised.
    commits: dumped blocks are invisible to others until `commit`.
    refuses_duplicates: a dump of a block that is there, or that another client is dumping, may fail.
    lookup_stops_at_a_miss: what a lookup says of blocks behind the first miss means nothing.
    block_bytes: the only length of a block; 0: any. alignment: of addresses and lengths.
    deadline: seconds for one call. preload: modules whose import takes long; they start no threads.
    package: the distribution that is driven, "" for this project's own and a user's own stores.
    """

    several_processes: ClassVar[bool] = True
    survives_kill: ClassVar[bool] = True
    survives_damage: ClassVar[bool] = True
    survives_restart: ClassVar[bool] = True
    survives_shortage: ClassVar[bool] = True
    survives_power_cut: ClassVar[AfterPowerCut] = "no"
    commits: ClassVar[bool] = False
    refuses_duplicates: ClassVar[bool] = False
    lookup_stops_at_a_miss: ClassVar[bool] = False
    block_bytes: ClassVar[int] = 0
    alignment: ClassVar[int] = 1
    deadline: ClassVar[float] = 10.0
    preload: ClassVar[tuple[str, ...]] = ()
    package: ClassVar[str] = ""

    @classmethod
    def missing(cls) -> str:
        """Why the store cannot be driven on this machine; "" if it can."""
        if not cls.package or cls.version():
            return ""
        return f"{cls.package} is not installed"

    @classmethod
    def version(cls) -> str:
        """Name and version of the distribution (without how it was built, as +cpu); "" if it is not
        installed, or is this project's own."""
        if not cls.package:
            return ""
        try:
            return f"{cls.package} {metadata.version(cls.package).partition('+')[0]}"
        except metadata.PackageNotFoundError:
            return ""

    @classmethod
    def interpreter(cls) -> str:
        """The Python that runs the store, where that is not this one."""
        return ""

    def open(self, folder: str) -> None:
        """Open the store in `folder`, which exists; empty, or as an earlier process left it."""
        raise NotImplementedError

    def put(self, block_id: bytes, source: Any) -> None:
        """Store one block."""
        raise NotImplementedError

    def get(self, block_id: bytes, target: Any) -> bool:
        """Fill `target` and return True (hit), or return False (miss)."""
        raise NotImplementedError

    def has(self, block_id: bytes) -> bool:
        """Whether the block would hit."""
        raise NotImplementedError

    def dump(self, block_ids: Sequence[bytes], sources: Sequence[Any]) -> Sequence[Status] | None:
        """Store blocks; None: all well, else a status for each (True, or the error's text)."""
        return [_status(self.put, one, tensor) or True for one, tensor in _pairs(block_ids, sources)]

    def commit(self, block_ids: Sequence[bytes]) -> None:
        """Make dumped blocks visible, where `commits` says that this is needed."""

    def load(self, block_ids: Sequence[bytes], targets: Sequence[Any]) -> Sequence[Status]:
        """Fill the targets; a status for each: True (hit), False (miss), or the error's text."""
        return [_status(self.get, one, tensor) for one, tensor in _pairs(block_ids, targets)]

    def lookup(self, block_ids: Sequence[bytes]) -> Sequence[bool]:
        """Whether each block would hit."""
        return [self.has(one) for one in block_ids]

    def close(self) -> None:
        """Close the store; what was stored stays."""


def fill(target: Any, found: Any) -> bool:
    """Copy what a key-value store found into a target; whether it found anything.

    found: bytes, or None. Raises ValueError where the target has another length.
    """
    if found is None:
        return False
    if len(found) != target.numel():
        raise ValueError(f"{len(found)} bytes for a target of {target.numel()}")
    memoryview(target.numpy())[:] = found
    return True


def checked(adapter: Any) -> type[Adapter]:
    """`adapter` if it can be driven. Raises UsageError."""
    if not (isinstance(adapter, type) and issubclass(adapter, Adapter)):
        raise UsageError(f"black_box: given {adapter!r}; allowed is a subclass of Adapter")
    name = adapter.__name__
    if adapter.open is Adapter.open:
        raise UsageError(f"{name}: the method open(folder) is missing")
    for one, batch in PAIRS:
        if all(getattr(adapter, method) is getattr(Adapter, method) for method in (one, batch)):
            raise UsageError(f"{name}: one of the methods {one} and {batch} is missing")
    for field, least in (("block_bytes", 0), ("alignment", 1)):
        value = getattr(adapter, field)
        if type(value) is not int or value < least:
            raise UsageError(f"{name}: {field}: given {value!r}; allowed an integer from {least} on")
    if adapter.block_bytes % adapter.alignment:
        raise UsageError(
            f"{name}: block_bytes: given {adapter.block_bytes}; allowed multiples of alignment ="
            f" {adapter.alignment}"
        )
    if not isinstance(adapter.deadline, int | float) or not 0 < adapter.deadline <= 600:
        raise UsageError(f"{name}: deadline: given {adapter.deadline!r}; allowed seconds, up to 600")
    return adapter


def _pairs(block_ids: Sequence[bytes], tensors: Sequence[Any]) -> list[tuple[bytes, Any]]:
    return list(zip(block_ids, tensors, strict=True))


def _status(call: Any, *values: Any) -> Any:
    """What the call returns, or its exception as a text: one block's failure stops no other."""
    try:
        return call(*values)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
