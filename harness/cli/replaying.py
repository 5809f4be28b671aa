"""`rankfault replay` and `rankfault explain`: run a seed or token again and hold it to its word."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import corpus
from harness.cli.hunting import EXIT, finding_data
from harness.cli.output import Output, complain, width
from harness.confirm import FABRIC, confirm
from harness.errors import SeedFileError, UsageError, nearest
from harness.finding import Finding, Outcome, Verdict
from harness.repeat import OUTSIDE
from harness.report.text import report
from harness.run import run
from harness.scenario import Scenario
from harness.supervise import Limits

SEEDS = Path("seeds")


@dataclass(frozen=True, slots=True)
class Again:
    """One replay. named: how the command line named it. problem: against the seed's status."""

    named: str
    scenario: Scenario
    outcome: Outcome
    finding: Finding | None
    reproduced: bool
    problem: str
    stale: bool


def path_of(word: str) -> Path:
    """The seed file that a word names: a path, or the name of a seed in seeds/."""
    path = Path(word)
    if word and (path / "seed.json").is_file():
        return path / "seed.json"  # the folder of a finding
    if path.exists() or path.suffix == ".json" or len(path.parts) > 1:
        return path
    kept = SEEDS / f"{word}.json"
    if kept.exists():
        return kept
    names = [file.stem for file in corpus.files(SEEDS)]
    hint = nearest(word, names) if names else "there are none"
    raise SeedFileError(f"{word}: no such seed file, and no seed of that name in {SEEDS}/; {hint}")


def again(word: str, fabric: str, *, limits: Limits | None = None, start: str = "fork") -> Again:
    """Run what `word` names. limits, start: of real processes. Raises UsageError."""
    if corpus.is_token(word):
        plan, scenario = corpus.plan_of_token(word)
        outcome = run(
            plan, fabric, scenario=scenario, races=True, watch=True, limits=limits, start=start
        )
        finding = outcome.findings[0] if outcome.findings else None
        return Again(word, scenario, outcome, finding, finding is not None, "", stale=False)
    path = path_of(word)
    seed = corpus.read(path)
    result = corpus.replay(seed, str(path), fabric, limits=limits, start=start)
    for warning in result.warnings:
        complain(warning, prefix="warning: ")
    return Again(
        word,
        result.scenario,
        result.outcome,
        result.finding,
        result.reproduced,
        result.problem,
        result.stale,
    )


def code_of(result: Again) -> int:
    """1 with a finding, 4 when the run proves nothing, else 0."""
    if result.finding is not None:
        return EXIT[Verdict.FAIL]
    return EXIT[Verdict.UNKNOWN if result.stale or result.outcome.notes else Verdict.PASS]


def run_replay(
    word: str, *, fabric: str, times: int, json: bool, limits: Limits | None = None,
    start: str = "fork",
) -> int:
    """The replay command; returns its exit code."""
    if times < 1:
        raise UsageError(f"--times {times}: give 1 or more")
    output = Output(json=json)
    if fabric == FABRIC:
        return _confirm(word, output, times, limits, start)
    result = again(word, fabric, limits=limits, start=start)
    identity = result.outcome.run.identity()
    shown = 1
    for number in range(1, times):
        races = result.finding is not None and result.finding.checker == "races"
        other = run(result.outcome.plan, fabric, scenario=result.scenario, races=races)
        differs = other.run.identity()
        if differs != identity:
            complain(
                f"replay {number + 1} of {times} differs from the first ({differs[:12]}, not "
                f"{identity[:12]}): {OUTSIDE}",
                prefix="UNKNOWN: ",
            )
            return EXIT[Verdict.UNKNOWN]
        shown += _same(other, result.finding)
    code = code_of(result)
    output.say(headline(result, times, shown))
    if result.finding is not None:
        output.say()
        output.say(_report(result, full=False))
    output.give(_data(result, code, times))
    return code


def _confirm(word: str, output: Output, times: int, limits: Limits | None, start: str) -> int:
    """What a seed's finding comes to on real processes; returns the exit code: 1 where they show it, 4
    where they do not, 0 where there is nothing to show."""
    claim = _claim(word, limits, start)
    if claim.finding is None:
        output.say(headline(claim, 1))
        output.say("nothing to confirm on real processes: the simulated run shows no finding")
        output.give(_data(claim, code_of(claim), 1))
        return code_of(claim)
    found = confirm(
        claim.outcome.plan, claim.scenario, claim.finding, times, limits=limits, start=start
    )
    code = EXIT[Verdict.FAIL if found.confirmed else Verdict.UNKNOWN]
    for line in found.lines():
        output.say(line)
    shown = found.shown.finds(found.identity)
    if shown is not None:
        output.say()
        output.say(_report(replace(claim, outcome=found.shown, finding=shown), full=False))
    output.give({
        **_data(claim, code, times), "confirmed_emulated": found.emulated,
        "confirmed_natural": found.natural, "conducted": found.conducted, "free": found.free,
        "instead": found.instead,
    })
    return code


def _claim(word: str, limits: Limits | None, start: str) -> Again:
    """What the simulated fabric shows of a seed; of one that hits real processes, what they show."""
    plan = (
        corpus.plan_of_token(word)[0] if corpus.is_token(word)
        else corpus.plan_of(corpus.read(path_of(word)), word)[0]
    )
    real = any("simulated" not in fault.fabrics for fault in plan.faults)
    return again(word, FABRIC, limits=limits, start=start) if real else again(word, "simulated")


def run_explain(word: str, *, fabric: str) -> int:
    """The explain command: the report with every event; returns its exit code."""
    output = Output()
    result = again(word, fabric)
    if result.finding is None:
        output.say(headline(result, 1))
    else:
        if result.problem:
            output.say(headline(result, 1) + "\n")
        output.say(_report(result, full=True))
    return code_of(result)


def _same(outcome: Outcome, finding: Finding | None) -> bool:
    """Whether another run of the plan shows the same: the finding, or none."""
    if finding is None:
        return not outcome.findings
    return outcome.finds(finding.identity) is not None


def headline(result: Again, times: int, shown: int = 1) -> str:
    """What came of it, in one line or two. shown: in how many of the runs."""
    identity = result.outcome.run.identity()[:12]
    often = f" {shown} of {times} times" if times > 1 else ""
    what = f"run identity {identity}{', the same each time' if times > 1 else ''}"
    if shown < times:
        what += "; a real program may behave differently from run to run"
    if result.reproduced and result.finding is not None:
        line = f"reproduced{often}: {result.finding.identity} ({what})"
    elif result.finding is not None:
        line = f"another finding{often}: {result.finding.identity} ({what})"
    else:
        line = f"not reproduced{often}: the run is {result.outcome.verdict.name} ({what})"
    notes = [f"note: {note}" for note in result.outcome.notes if result.finding is None]
    problem = [f"seed: {result.problem}"] if result.problem else []
    return "\n".join([line, *problem, *notes])


def _report(result: Again, *, full: bool) -> str:
    assert result.finding is not None
    return report(
        result.outcome,
        result.finding,
        result.scenario,
        replay=shlex.quote(result.named),
        width=width(),
        full=full,
    )


def _data(result: Again, code: int, times: int) -> dict[str, Any]:
    run_record = result.outcome.run
    return {
        "exit_code": code,
        "reproduced": result.reproduced,
        "problem": result.problem,
        "verdict": result.outcome.verdict.name,
        "times": times,
        "run_identity": run_record.identity(),
        "value_identity": run_record.value_identity(),
        "finding": result.finding and finding_data(result.finding),
        "notes": list(result.outcome.notes),
    }
