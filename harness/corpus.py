"""Seed files: one bug a file, readable, strict, written at once or not at all.

A seed is a plan with the finding it is expected to show and where it came from. `open` means the
bug is there and the seed must reproduce it; `fixed` means the run must be clean and every fault and
deviation of the plan must still take effect, or the seed guards nothing any more (it is stale).

Reading names file, line and field. Writing goes to a temporary file in the same folder that then
takes the place of the old one. A token is a plan as one word (`rf1:` and base64url of deflated
JSON), for a command line. Not in a seed: dates, paths of a machine, code.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import tempfile
import zlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import torch

from harness import registry
from harness.errors import PlanError, SeedFileError, UnknownName, UserFileError
from harness.finding import Finding, Outcome
from harness.json_place import line_of, located
from harness.plan import Hold, Plan, Wire, decode_wire, encode, from_wire, to_wire
from harness.run import run
from harness.scenario import Scenario
from harness.supervise import Limits

FORMAT = 1
TOKEN_PREFIX = "rf1:"
TOKEN_JSON_MAX = 1 << 20
FILE_BYTES_MAX = 16 << 20
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding that an open seed shows. identity: as minimising keeps it."""

    identity: str
    checker: str
    kind: str
    message: str


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a seed came from. root_seed and explorer: of the hunt, if one found it. subject: name and
    version of a third-party system under test."""

    rankfault: str
    torch: str
    root_seed: int | None = None
    explorer: str = ""
    subject: str = ""


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One seed file. scenario_digest: of the user's file, "" for a packaged scenario."""

    format: int = msgspec.field(name="rankfault")
    name: Name
    status: Literal["open", "fixed"]
    finding: Expected
    plan: Wire
    origin: Origin
    scenario_digest: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A seed, run again. finding: the expected one if it shows, else the first other one.

    problem: why this is not what the seed's status promises, in one line ("" when it is). stale:
    the problem is that faults or deviations of the seed no longer take effect.
    """

    seed: Seed
    scenario: Scenario
    outcome: Outcome
    finding: Finding | None
    reproduced: bool
    problem: str
    stale: bool = False
    warnings: tuple[str, ...] = ()


def tool_version() -> str:
    """The version of this distribution."""
    try:
        return version("rankfault")
    except PackageNotFoundError:  # run from a folder, not installed
        return "unknown"


def seed_of(
    name: str,
    outcome: Outcome,
    finding: Finding,
    scenario: Scenario,
    *,
    root_seed: int | None = None,
    explorer: str = "",
) -> Seed:
    """An open seed of a finding."""
    return Seed(
        format=FORMAT,
        name=name,
        status="open",
        finding=Expected(finding.identity, finding.checker, finding.kind, finding.message),
        plan=to_wire(outcome.plan),
        origin=Origin(
            tool_version(), str(torch.__version__), root_seed, explorer, scenario.subject_version
        ),
        scenario_digest=scenario.digest,
    )


# Reading ----------------------------------------------------------------------------------------


def read(path: Path) -> Seed:
    """The seed in a file. Raises SeedFileError that names the file, and the line and field."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SeedFileError(f"{path}: larger than {FILE_BYTES_MAX >> 20} MiB; not a seed file")
        data = path.read_bytes()
    except OSError as error:
        raise SeedFileError(f"{path}: {error.strerror or error}") from None
    return decode(data, str(path))


def decode(data: bytes, where: str) -> Seed:
    """The seed that `data` holds, strictly."""
    text = _text(data, where)
    try:
        loose = json.loads(text)
    except json.JSONDecodeError as error:
        cut = "cut off" if error.pos >= len(text.rstrip()) or _truncated(data) else "not JSON"
        raise SeedFileError(f"{where}:{error.lineno}:{error.colno}: {cut}: {error.msg}") from None
    except RecursionError:
        raise SeedFileError(f"{where}: not a seed file: nested too deeply") from None
    if not isinstance(loose, dict) or "rankfault" not in loose:
        raise SeedFileError(f"{where}:1: not a seed file: it has no field `rankfault`")
    number = loose["rankfault"]
    if isinstance(number, int) and number != FORMAT:
        line = line_of(text, "$.rankfault")
        hint = "newer than this version reads; upgrade rankfault" if number > FORMAT else "unknown"
        raise SeedFileError(f"{where}:{line}: $.rankfault: format {number} is {hint} ({FORMAT})")
    try:
        return msgspec.json.decode(data, type=Seed, strict=True)
    except msgspec.DecodeError as error:
        raise SeedFileError(located(text, where, str(error), "$")) from None


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SeedFileError(f"{where}:{line}: not UTF-8 text: {error.reason}") from None


def _truncated(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return False


def plan_of(seed: Seed, where: str, data: bytes | None = None) -> tuple[Plan, Scenario, list[str]]:
    """The seed's plan and scenario, and warnings. data: the file's bytes, for lines in errors.

    Raises SeedFileError when the plan names what does not exist or lies outside the bounds.
    """
    text = data.decode() if data is not None else encode_file(seed).decode()
    try:
        scenario = registry.find(seed.plan.scenario)
    except (UnknownName, UserFileError) as error:
        line = line_of(text, "$.plan.scenario")
        raise SeedFileError(f"{where}:{line}: $.plan.scenario: {error}") from None
    try:
        plan = from_wire(seed.plan, scenario.params, registry.faults(), "")
    except PlanError as error:
        raise SeedFileError(located(text, where, str(error), "$.plan")) from None
    if plan.bug is not None and plan.bug not in scenario.mutants:
        unknown = UnknownName(f"mutant of {scenario.name}", plan.bug, scenario.mutants)
        raise SeedFileError(f"{where}:{line_of(text, '$.plan.bug')}: $.plan.bug: {unknown}")
    low, high = scenario.ranks
    if not low <= plan.ranks <= high:
        raise SeedFileError(
            f"{where}:{line_of(text, '$.plan.ranks')}: $.plan.ranks: {plan.ranks} is outside "
            f"{low}..{high}, the worlds of {scenario.name}"
        )
    warnings = []
    if seed.scenario_digest != scenario.digest:
        warnings.append(
            f"{where}: {scenario.name} has changed since this seed was written "
            f"({seed.scenario_digest or 'packaged'} then, {scenario.digest or 'packaged'} now)"
        )
    there = scenario.subject_version
    if seed.origin.subject and there and seed.origin.subject != there:
        warnings.append(f"{where}: it was found in {seed.origin.subject}; here is {there}")
    return plan, scenario, warnings


def missing(seed: Seed) -> str:
    """Why the seed cannot run on this machine; "" if it can, or is broken in another way."""
    try:
        return registry.find(seed.plan.scenario).missing
    except (UnknownName, UserFileError):
        return ""


def files(folder: Path) -> list[Path]:
    """The seed files of a folder in name order. Raises SeedFileError when it is no folder."""
    if not folder.exists():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise SeedFileError(f"{folder}: {error.strerror or error}") from None


# Writing ----------------------------------------------------------------------------------------


def encode_file(seed: Seed) -> bytes:
    """The seed as its file holds it."""
    return msgspec.json.format(msgspec.json.encode(seed), indent=2) + b"\n"


def write(path: Path, seed: Seed) -> None:
    """Write a seed file, whole or not at all. Raises SeedFileError."""
    write_whole(path, encode_file(seed))


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in the place of `path` at once. Raises SeedFileError, with the old file intact."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise SeedFileError(_refused(path, error)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise SeedFileError(_refused(path, error)) from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _refused(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror or error}; nothing was changed"


# Tokens -----------------------------------------------------------------------------------------


def token_of(plan: Plan) -> str:
    """The plan as one word that `rankfault replay` accepts."""
    return token_of_json(encode(plan))


def token_of_json(data: bytes) -> str:
    """The same for a plan that is JSON already."""
    packed = zlib.compress(data, 9)
    return TOKEN_PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def is_token(text: str) -> bool:
    """Whether a command line's word is meant as a token."""
    return re.match(r"rf\d+:", text) is not None


def plan_of_token(token: str) -> tuple[Plan, Scenario]:
    """The plan of a token and its scenario. Raises SeedFileError, PlanError or UnknownName."""
    if not token.startswith(TOKEN_PREFIX):
        raise SeedFileError(
            f"token {token[:12]}…: this version reads tokens that begin with {TOKEN_PREFIX}; "
            "upgrade rankfault if the number is higher"
        )
    body = token[len(TOKEN_PREFIX) :].strip()
    damaged = f"token {token[:16]}…: cut off or damaged ({len(token)} characters)"
    try:
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        unpack = zlib.decompressobj()
        data = unpack.decompress(packed, TOKEN_JSON_MAX)
    except (binascii.Error, ValueError, zlib.error):
        raise SeedFileError(damaged) from None
    if not unpack.eof or unpack.unused_data:
        raise SeedFileError(damaged)
    wire = decode_wire(data, "token")
    scenario = registry.find(wire.scenario)
    return from_wire(wire, scenario.params, registry.faults(), "token"), scenario


# Replaying --------------------------------------------------------------------------------------


def replay(
    seed: Seed, where: str, fabric: str = "simulated", *, limits: Limits | None = None,
    start: str = "fork",
) -> Replayed:
    """Run a seed again and hold the outcome against its status. where: for messages, the file.

    limits, start: of real processes (harness/run.py).
    """
    plan, scenario, warnings = plan_of(seed, where)
    outcome = run(
        plan, fabric, scenario=scenario, races=True, watch=True, limits=limits, start=start
    )
    finding = outcome.finds(seed.finding.identity)
    stale = False
    problem = ""
    first = outcome.findings[0] if outcome.findings else None
    idle = _idle(outcome)
    if seed.status == "open":
        if finding is None and idle:
            stale = True
            problem = (
                f"no longer shows {seed.finding.identity}, but {'; '.join(idle)}: that proves "
                "nothing, so hunt for it anew"
            )
        elif finding is None and first is not None:
            problem = f"shows {first.identity} instead of {seed.finding.identity}"
        elif finding is None:
            problem = (
                f"no longer shows {seed.finding.identity}: cured? run `rankfault seeds fix "
                f"{seed.name}`"
            )
    elif first is not None:
        again = "is back" if finding is not None else f"fails in another way: {first.identity}"
        problem = f"marked as fixed, but {seed.finding.identity} {again}"
        if finding is None:
            problem = f"marked as fixed, but {again}"
    elif idle:
        stale = True
        problem = f"stale: {'; '.join(idle)}; it guards nothing any more, so hunt for it anew"
    if not problem and seed.status == "fixed" and outcome.notes:
        problem = "; ".join(outcome.notes)
    return Replayed(
        seed,
        scenario,
        outcome,
        finding or first,
        finding is not None,
        problem,
        stale,
        tuple(warnings),
    )


def _idle(outcome: Outcome) -> list[str]:
    """What of the plan took no effect in the run."""
    plan = outcome.plan
    idle = [
        f"{fault!r} never fired"
        for fault, fired in zip(plan.faults, outcome.run.fired, strict=True)
        if not fired
    ]
    eager = plan.visibility.delivery == "eager"
    due = {
        (type(d), d.op if isinstance(d, Hold) else d.at)
        for d in plan.schedule
        if not (eager and isinstance(d, Hold))
    }
    missed = len(due) - outcome.run.deviations_applied
    if missed > 0:
        idle.append(f"{missed} of {len(due)} deviations took no effect")
    return idle


def plain(seed: Seed) -> dict[str, Any]:
    """The seed as plain data, for --json."""
    return msgspec.to_builtins(seed)  # type: ignore[no-any-return]
