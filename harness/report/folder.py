"""The folder that a failing hunt leaves: everything to understand, replay and keep one finding.

    report.txt     the verdict: the report, ending with the replay command
    seed.json      the seed file
    replay.txt     the replay command alone
    timeline.txt   every event, ranks as columns
    timeline.svg   the report's timeline as a picture
    rank-N.log     what rank N did and what was delivered for it, one event a line
    stacks.txt     tracebacks of what raised, and where each blocked rank stands
    versions.json  Python, torch and the other libraries
    dfx_outputs/   of a pld program: what each device did (frontends/pypto/dfx.py)

It is built beside its place and renamed, so it is there as a whole or not at all. A folder of the
same finding is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from harness.corpus import encode_file, seed_of
from harness.errors import UsageError
from harness.finding import Finding, Outcome
from harness.frontends.pypto.dfx import dfx_files
from harness.plan import encode
from harness.record import Run, place
from harness.registry import MAIN
from harness.report.events import line
from harness.report.text import report
from harness.report.timeline import timeline
from harness.report.timeline_svg import timeline_svg
from harness.scenario import Scenario

if TYPE_CHECKING:
    from harness.minimise import Minimised

PLD_MAIN = "main"  # as frontends/pypto/scenarios.py calls a file's host calls
LIBRARIES = ("rankfault", "torch", "numpy", "greenlet", "hypothesis", "msgspec", "pytest")


def name_of(outcome: Outcome, finding: Finding) -> str:
    """`<scenario>-<short id>`: a function of the plan and the finding alone."""
    plan = outcome.plan
    path, _, name = plan.scenario.rpartition("::")
    stem = PurePosixPath(path).stem if name.partition("#")[0] in (MAIN, PLD_MAIN) else name
    digest = hashlib.sha256(encode(plan) + finding.identity.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', stem)}-{digest}"


def leave(
    parent: Path,
    outcome: Outcome,
    finding: Finding,
    scenario: Scenario,
    minimised: Minimised | None,
    *,
    root_seed: int,
    explorer: str,
) -> tuple[Path, str]:
    """Write the folder below `parent`: its path and the report. Raises UsageError."""
    name = name_of(outcome, finding)
    place_of_seed = (parent / name / "seed.json").as_posix()
    text = report(outcome, finding, scenario, minimised, replay=shlex.quote(place_of_seed))
    seed = seed_of(name, outcome, finding, scenario, root_seed=root_seed, explorer=explorer)
    contents = {
        "report.txt": text + "\n",
        "seed.json": encode_file(seed).decode(),
        "replay.txt": f"rankfault replay {shlex.quote(place_of_seed)}\n",
        "timeline.txt": "\n".join(_wide_timeline(outcome.run, finding)) + "\n",
        "timeline.svg": timeline_svg(outcome.run, finding),
        "stacks.txt": stacks(outcome.run),
        "versions.json": msgspec.json.format(msgspec.json.encode(versions()), indent=2).decode()
        + "\n",
    }
    for rank in range(outcome.run.ranks):
        contents[f"rank-{rank}.log"] = rank_log(outcome.run, rank)
    contents |= {f"dfx_outputs/{path}": file for path, file in dfx_files(outcome.run).items()}
    _write(parent, name, contents)
    return parent / name, text


def _wide_timeline(run: Run, finding: Finding) -> list[str]:
    return timeline(run, finding, width=max(80, 10 + 32 * max(len(run.lanes), 1)), rows_max=None)


def rank_log(run: Run, rank: int) -> str:
    """The events of one rank and the deliveries of its operations, one a line; what it printed."""
    lines = [
        line(run, index) for index, event in enumerate(run.events) if run.rank_of(event) == rank
    ]
    printed = run.printed[rank] if run.printed else ""
    if printed:
        lines += ["", "what its process printed:", printed]
    return "".join(f"{text}\n" for text in lines)


def stacks(run: Run) -> str:
    """Tracebacks in the order in which they were raised, then the place of each blocked rank."""
    parts = []
    for failure in run.failures:
        who = "the host program" if failure.lane < 0 else run.lane_name(failure.lane)
        parts.append(f"{who} raised at event {failure.clock}\n{failure.traceback}")
    for blocked in (*run.blocked, *run.livelock):
        what = "polls" if blocked in run.livelock else f"is blocked in {blocked.kind}"
        parts.append(f"{run.lane_name(blocked.lane)} {what} at {place(blocked.code, blocked.lasti)}\n")
    return "\n".join(parts) or "no rank raised, and none is blocked\n"


def versions() -> dict[str, str]:
    """What ran: Python, the system and the libraries that matter."""
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _write(parent: Path, name: str, contents: dict[str, str]) -> None:
    target = parent / name
    scratch = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
        os.chmod(scratch, 0o755)
        for file, text in contents.items():
            target_file = Path(scratch) / file
            target_file.parent.mkdir(parents=True, exist_ok=True)
            target_file.write_text(text, encoding="utf-8")
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        os.rename(scratch, target)
    except OSError as error:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise UsageError(
            f"{target}: cannot be written: {error.strerror or error}; the report above is complete"
        ) from None
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
