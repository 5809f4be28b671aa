"""`rankfault run` of a pld program or a pld test file: its main or tests once, each host call judged."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from harness import registry
from harness.cli.hunting import finding_data
from harness.cli.output import Output, width
from harness.corpus import token_of
from harness.errors import UsageError
from harness.finding import Outcome, Verdict
from harness.frontends.pypto.modules import check_choice
from harness.frontends.pypto.programs import MAIN, program_of
from harness.frontends.pypto.scenarios import is_test_file
from harness.plan import Plan
from harness.report.hunt_text import hunt_again
from harness.report.text import report
from harness.run import run
from harness.scenario import Scenario

EXIT = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 4}
REPORTS_MAX = 3


def run_pld(
    file: str, args: tuple[str, ...], *, ranks: int | None, kind: str | None, json: bool
) -> int:
    """The whole command; returns its exit code. Raises UsageError."""
    check_choice(asked=kind is not None)
    output = Output(json=json)
    path = registry.from_here(file.partition("::")[0])
    printed = ""
    if not is_test_file(path):
        text, _ = registry.user_text(path)
        program = program_of(str(PurePosixPath(path)), text, args, MAIN)
        printed = program.printed
        for line in printed.splitlines():
            output.say(line)
        if not program.calls and program.raised is None:
            output.say("UNKNOWN: the program made no host call, so nothing ran on a device")
            output.give({"exit_code": 4, "verdict": "UNKNOWN", "calls": [], "printed": printed})
            return 4
    scenarios = registry.find_all(file, kind, args)
    _check_ranks(scenarios, ranks)
    outcomes: list[Outcome] = []
    for scenario in scenarios:
        if scenario.missing:
            output.say(f"left out: {scenario.name}: {scenario.missing}")
            continue
        world = ranks or (scenario.usual_ranks or scenario.ranks)[0]
        plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=world)
        outcome = run(plan, scenario=scenario, races=True)
        outcomes.append(outcome)
        failed = [one for one in outcomes if one.findings]
        if outcome.findings and len(failed) <= REPORTS_MAX:
            output.say(f"\n{report(outcome, outcome.findings[0], scenario, width=width())}\n")
        elif outcome.findings:
            output.say(f"{scenario.name}: {outcome.findings[0].message}")
    verdict = max((one.verdict for one in outcomes), default=Verdict.UNKNOWN)
    output.say(_sum_up(outcomes, len(scenarios), verdict, hunt_again(file, args, kind)))
    code = EXIT[verdict]
    output.give({
        "exit_code": code, "verdict": verdict.name, "printed": printed,
        "calls": [_data(one) for one in outcomes],
        "left_out": {one.name: one.missing for one in scenarios if one.missing},
    })
    return code


def _check_ranks(scenarios: list[Scenario], ranks: int | None) -> None:
    for scenario in scenarios:
        low, high = scenario.ranks
        if ranks is not None and not low <= ranks <= high:
            raise UsageError(
                f"--ranks {ranks}: {scenario.name} names its devices itself, {high} of them; give the "
                "program's own arguments"
            )


def _sum_up(outcomes: list[Outcome], count: int, verdict: Verdict, then: str) -> str:
    failed = sum(bool(one.findings) for one in outcomes)
    if len(outcomes) == 1 and count == 1:
        done = outcomes[0].run
        what = f"{verdict.name}: {done.ranks} ranks, {len(done.raw)} events"
    else:
        left = count - len(outcomes)
        what = f"{verdict.name}: {len(outcomes)} host calls, {failed} with a finding, {left} left out"
    return what if failed else f"{what}\nnext: {then}"


def _data(outcome: Outcome) -> dict[str, Any]:
    """One host call in the --json object."""
    return {
        "scenario": outcome.plan.scenario, "verdict": outcome.verdict.name, "ranks": outcome.run.ranks,
        "events": len(outcome.run.raw), "findings": [finding_data(one) for one in outcome.findings],
        "token": token_of(outcome.plan),
    }
