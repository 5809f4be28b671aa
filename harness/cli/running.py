"""`rankfault run`: a program once, in the default schedule; what it prints, and what is wrong with it."""

from __future__ import annotations

from typing import Any

from harness import registry
from harness.cli.hunting import finding_data
from harness.cli.output import Output, width
from harness.corpus import token_of
from harness.errors import UsageError
from harness.finding import Outcome, Verdict
from harness.plan import Plan
from harness.report.hunt_text import hunt_again
from harness.report.text import report
from harness.run import run
from harness.scenario import Scenario
from harness.supervise import Limits

EXIT = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 4}
RANKS = 4


def run_file(
    file: str, args: tuple[str, ...], *, ranks: int | None, kind: str | None, json: bool,
    cuda: bool = False,
) -> int:
    """The whole command; returns its exit code. cuda: what the script is told. Raises UsageError."""
    if not file.partition("::")[0].endswith(".py"):
        raise UsageError(f"run {file}: give a Python file; packaged scenarios are hunted, not run")
    if registry.kind_of_file(file, kind) == "pld" and not cuda:
        from harness.cli.running_pld import run_pld  # pytest's parts are slow

        return run_pld(file, args, ranks=ranks, kind=kind, json=json)
    found = registry.find_all(file, kind, args, cuda=cuda)
    if len(found) > 1:
        names = ", ".join(one.name for one in found)
        raise UsageError(f"run {file}: it holds several: {names}; name one of them")
    scenario = found[0]
    output = Output(json=json)
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=world_size(scenario, ranks))
    outcome = run(plan, scenario=scenario, watch=True)
    for rank, text in enumerate(outcome.run.printed):
        for line in text.splitlines():
            output.say(f"[rank {rank}] {line}")
    for finding in outcome.findings[:1]:
        output.say(f"\n{report(outcome, finding, scenario, width=width())}\n")
    code = EXIT[outcome.verdict]
    output.say(_sum_up(outcome, hunt_again(file, args, kind, cuda=cuda)))
    output.give(_data(outcome, code))
    return code


def run_on_processes(
    file: str, args: tuple[str, ...], *, ranks: int | None, kind: str | None, fabric: str,
    limits: Limits | None, json: bool,
) -> int:
    """The same with one real process a rank, for torch.distributed scripts. Raises UsageError."""
    if fabric != "processes":
        raise UsageError(f"--fabric {fabric}: choose one of: simulated, processes")
    scenario = registry.find_all(file, kind, args)[0]
    if not scenario.name.endswith(f"::{registry.MAIN}"):
        raise UsageError(
            f"run {file} --fabric processes: only torch.distributed scripts; a scenario's seed is "
            "confirmed by `rankfault replay SEED --fabric processes`"
        )
    from harness.fabric.real_ranks import run_real

    output = Output(json=json)
    outcome = run_real(file.partition("::")[0], args, world_size(scenario, ranks), limits=limits)
    for one in outcome.ranks:
        for line in one.printed.splitlines():
            output.say(f"[rank {one.rank}] {line}")
    verdict, findings = outcome.verdict(), outcome.findings()
    if not findings and outcome.first is not None:  # it ended with an error of its own
        verdict = Verdict.FAIL
    output.say(str(outcome))
    output.say(verdict.name)
    code = EXIT[verdict]
    output.give({
        "exit_code": code, "verdict": verdict.name, "ranks": len(outcome.ranks),
        "findings": [finding_data(one) for one in findings],
        "printed": [one.printed for one in outcome.ranks],
        "codes": [one.code for one in outcome.ranks],
    })
    return code


def world_size(scenario: Scenario, ranks: int | None) -> int:
    """The world to run in. Raises UsageError."""
    low, high = scenario.ranks
    if ranks is None:
        usual = scenario.usual_ranks
        return usual[1] if usual else min(max(RANKS, low), high)
    if not low <= ranks <= high:
        raise UsageError(f"--ranks {ranks}: {scenario.name} runs with {low}..{high}")
    return ranks


def _sum_up(outcome: Outcome, then: str) -> str:
    done = outcome.run
    what = f"{outcome.verdict.name}: {done.ranks} ranks, {len(done.raw)} events"
    if outcome.verdict is Verdict.UNKNOWN:
        what += "; " + "; ".join(outcome.notes)
    return f"{what}\nnext: {then}" if not outcome.findings else what


def _data(outcome: Outcome, code: int) -> dict[str, Any]:
    """The --json object."""
    return {
        "exit_code": code,
        "verdict": outcome.verdict.name,
        "ranks": outcome.run.ranks,
        "events": len(outcome.run.raw),
        "findings": [finding_data(one) for one in outcome.findings],
        "printed": outcome.run.printed,
        "token": token_of(outcome.plan),
    }
