"""The plan: everything that one run depends on, as a value.

A plan is strict data. It decodes from JSON with an error that names the field, encodes to the same
bytes again, and holds no code. Faults and parameters are open sets (a scenario brings its own
parameter Struct, `faults/` its own fault Structs), so decoding takes both from the caller.

Not in a plan: the fabric (an argument of `run`), clocks, paths of this machine, opaque seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from harness.errors import PlanError, nearest

FORMAT = 1
RANKS_MAX = 64
EVERY = -1  # a fault's rank or nth: each rank, each operation, as a defect of the code would

TORN: tuple[Literal[0, 4, 8, 64], ...] = (0, 4, 8, 64)
CACHES = ("lines", "stale", "delayed")  # the switches of Visibility that are about a core's cache
NonNegative = Annotated[int, msgspec.Meta(ge=0)]
T = TypeVar("T")


class Hold(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hold", tag_field="kind"):
    """Keep the `op`-th issued one-sided operation back for `until` further events; 0 = as long as
    anything else can move."""

    op: NonNegative
    until: NonNegative = 0


class Preempt(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="preempt", tag_field="kind"
):
    """At the `at`-th point with two or more enabled owners run the `to`-th other one."""

    at: NonNegative
    to: NonNegative = 0


Deviation = Hold | Preempt


class Visibility(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one-sided operations become visible.

    torn: puts and gets may take effect in pieces, cut at multiples of so many bytes; 0 = whole.
    What a core's cache does (rows N to S of fabric/memory.py) exists on the simulated fabric only.
    lines: a store of a number, and a notify by Set, writes all of its 64-byte line back. stale: a load
    may see an old copy of a line. delayed: a store reaches memory later (with `lines` it always does).
    """

    delivery: Literal["relaxed", "eager"] = "relaxed"
    torn: Literal[0, 4, 8, 64] = 0
    lines: bool = False
    stale: bool = False
    delayed: bool = False

    @property
    def caches(self) -> bool:
        """Whether cores have caches that a program can tell from memory."""
        return self.lines or self.stale or self.delayed


# From the simplest on: lines, stale, delayed. Lines are delayed whether the switch says so or not.
_CACHES = (
    (False, False, False), (False, False, True), (False, True, False), (False, True, True),
    (True, False, False), (True, True, False),
)


def coarser(seen: Visibility) -> list[Visibility]:
    """What is simpler than `seen`, the simplest first: less of caches, then whole operations or larger
    pieces."""
    without = msgspec.structs.replace(seen, lines=False, stale=False, delayed=False)
    found: list[Visibility] = []
    for lines, stale, delayed in _CACHES:
        one = msgspec.structs.replace(without, lines=lines, stale=stale, delayed=delayed)
        if one == seen:
            break
        if lines <= seen.lines and stale <= seen.stale and delayed <= (seen.delayed or seen.lines):
            found.append(one)
    sizes = [size for size in (0, *reversed(TORN)) if seen.torn and (size == 0 or size > seen.torn)]
    return found + [msgspec.structs.replace(seen, torn=size) for size in dict.fromkeys(sizes)]


class Crash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The crash of a storage run, and what of its disk's operation log is there afterwards.

    at: how many entries of the log were made. keep: by index, those that persisted although nothing had
    made them durable. torn: bytes lost at the end of the last one that wrote. zeros: the file has its
    size all the same. again: the crash of the recovery that follows. What does not fit is clamped.
    """

    at: NonNegative
    keep: tuple[NonNegative, ...] = ()
    torn: NonNegative = 0
    zeros: bool = False
    again: Crash | None = None


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="fault", tag=True):
    """Base of every fault: a frozen value with the occurrence that it hits.

    rank: the rank whose operations it looks at; -1 = every rank, as a defect in a program's code.
    nth: which matching operation of that rank (from 0; its lanes together, in the order of the run);
    -1 = each of them.
    Subclasses live in `faults/` and say what they do in `rewrite` (see harness/interpose.py); their
    docstring's first line says it in plain words for the CLI.
    family: "environment" for what the world does to a correct program, "bug" for a planted defect.
    """

    family: ClassVar[Literal["environment", "bug"]] = "bug"
    everywhere: ClassVar[bool] = True  # whether rank = -1, every rank, makes sense
    lowers: ClassVar[bool] = False  # a friendly name for deviations: `lower` writes them down
    starts: ClassVar[bool] = False  # it hits a real process before its program: `deed` says how
    fabrics: ClassVar[tuple[str, ...]] = ("simulated", "processes")  # where it can happen
    caches: ClassVar[bool] = False  # it hits what only a core with a cache does (Visibility.caches)
    reorders: ClassVar[bool] = False  # lowered after those that only hold single operations

    rank: Annotated[int, msgspec.Meta(ge=EVERY, lt=RANKS_MAX)] = 0
    nth: Annotated[int, msgspec.Meta(ge=EVERY)] = 0

    def matches(self, op: Any) -> bool:
        """Whether `op` is one of those counted for `nth`."""
        raise NotImplementedError

    def rewrite(self, op: Any) -> Any:
        """The operation to perform instead, or an action of harness/interpose.py."""
        raise NotImplementedError

    def deed(self) -> Any:
        """A function that hits the rank's real process before its program begins (`starts` only)."""
        raise NotImplementedError

    def lower(self, plan: Any, scenario: Any) -> Any:
        """`plan` without this fault and with the deviations that it stands for (`lowers` only)."""
        raise NotImplementedError

    @classmethod
    def tag(cls) -> str:
        """The fault's name in plans and on the command line."""
        return str(cls.__struct_config__.tag)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run, written down. `bug` names the mutant that stands in for its twin, if any."""

    scenario: str
    params: Any
    ranks: int
    bug: str | None = None
    visibility: Visibility = Visibility()
    faults: tuple[Fault, ...] = ()
    schedule: tuple[Deviation, ...] = ()
    crash: Crash | None = None
    format: int = FORMAT


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan before its scenario and faults are known: the same fields in file order."""

    format: int
    scenario: str
    ranks: Annotated[int, msgspec.Meta(ge=1, le=RANKS_MAX)]
    params: dict[str, Any]
    bug: str | None = None
    visibility: Visibility = Visibility()
    faults: tuple[dict[str, Any], ...] = ()
    schedule: tuple[Deviation, ...] = ()
    crash: Crash | None = None


class _FormatOnly(msgspec.Struct):
    format: int


def to_wire(plan: Plan) -> Wire:
    """The plan as plain data, fields in the order in which a reader wants them."""
    return Wire(
        format=plan.format,
        scenario=plan.scenario,
        bug=plan.bug,
        ranks=plan.ranks,
        params=msgspec.to_builtins(plan.params),
        visibility=plan.visibility,
        faults=tuple(msgspec.to_builtins(fault) for fault in plan.faults),
        schedule=plan.schedule,
        crash=plan.crash,
    )


def encode(plan: Plan) -> bytes:
    """The plan as one line of JSON."""
    return msgspec.json.encode(to_wire(plan))


def convert(data: Any, target: type[T], what: str) -> T:
    """`data` as a `target`, strictly; errors name `what` and the field."""
    try:
        return msgspec.convert(data, target, strict=True)
    except msgspec.ValidationError as error:
        raise PlanError(f"{what}: {error}") from None


def check_format(number: int, what: str) -> None:
    """Refuse a format this version does not know."""
    if number > FORMAT:
        raise PlanError(
            f"{what}: format {number} is newer than this rankfault reads ({FORMAT}); upgrade it"
        )
    if number < 1:
        raise PlanError(f"{what}: format {number} is not a format; the first is 1")


def from_wire(
    wire: Wire, params: type[msgspec.Struct], faults: Mapping[str, type[Fault]], what: str = "plan"
) -> Plan:
    """The plan that `wire` describes.

    Raises PlanError naming the field when a value is of the wrong type, unknown or out of range.
    """
    check_format(wire.format, what)
    decoded = []
    for index, data in enumerate(wire.faults):
        name = data.get("fault")
        if not isinstance(name, str) or name not in faults:
            raise PlanError(
                f"{what}: $.faults[{index}].fault: no fault is called {name!r}; "
                f"{nearest(str(name), faults)}"
            )
        fault = convert(data, faults[name], f"{what}: $.faults[{index}] ({name})")
        if fault.rank >= wire.ranks:
            raise PlanError(
                f"{what}: $.faults[{index}].rank: {fault.rank} is outside 0..{wire.ranks - 1}"
            )
        decoded.append(fault)
    return Plan(
        scenario=wire.scenario,
        params=convert(wire.params, params, f"{what}: $.params"),
        ranks=wire.ranks,
        bug=wire.bug,
        visibility=wire.visibility,
        faults=tuple(decoded),
        schedule=wire.schedule,
        crash=wire.crash,
        format=wire.format,
    )


def decode_wire(data: bytes | str, what: str = "plan") -> Wire:
    """The wire form of one JSON text; PlanError names the field or the place where it broke."""
    try:
        return msgspec.json.decode(data, type=Wire, strict=True)
    except msgspec.DecodeError as error:  # ValidationError is one of its kinds
        if isinstance(error, msgspec.ValidationError):  # a newer format may have other fields
            with contextlib.suppress(msgspec.DecodeError):
                check_format(msgspec.json.decode(data, type=_FormatOnly).format, what)
        raise PlanError(f"{what}: {error}") from None
