"""`rankfault hunt`: what to hunt, each hunt in turn, then minimise, report, keep, sum up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import registry
from harness.ambient import fresh_seed, now
from harness.checkers import CHECKERS, RACES
from harness.cli.interrupt import Interrupt, Interrupted
from harness.cli.output import Output, complain, width
from harness.cli.progress import Progress
from harness.corpus import token_of, token_of_json
from harness.diagnosis.table import LIKELY
from harness.errors import EngineError, NotHere, UnknownName, UsageError, one_line
from harness.finding import Finding, Outcome, Verdict
from harness.hunt import Hunt, Order, Target, fault_type, hunt
from harness.in_flight import InFlight, Slot, open_slot
from harness.minimise import Minimised, minimise
from harness.plan import RANKS_MAX, TORN, Plan, encode
from harness.repeat import checked, repeatable
from harness.report import folder
from harness.report.hunt_text import command, next_command, plain, summary, title, verdict_of
from harness.report.text import report
from harness.scenario import Scenario

SECONDS_DEFAULT = 60.0
EXIT = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 4}
STOPPED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The hunt command's options as typed."""

    targets: tuple[str, ...] = ()
    kind: str | None = None
    argv: tuple[str, ...] = ()
    cuda: bool = False
    bug: str | None = None
    faults: tuple[str, ...] = ()
    each: bool = False
    ranks: str | None = None
    minutes: float | None = None
    plans: int | None = None
    root_seed: int | None = None
    delivery: str = "relaxed"
    torn: int | None = None
    caches: bool = False
    until: str | None = None
    json: bool = False
    out: Path = Path("rankfault-findings")
    minimise_seconds: float = 20.0


# What to hunt -----------------------------------------------------------------------------------


def parse_ranks(text: str) -> tuple[int, int]:
    """`4` or `2..8`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]+)(?:\.\.([0-9]+))?", text.strip())
    if match is None:
        raise UsageError(f"--ranks {text!r}: give one world size or a range, such as 4 or 2..8")
    low = int(match[1])
    high = int(match[2]) if match[2] else low
    if not 1 <= low <= high <= RANKS_MAX:
        raise UsageError(f"--ranks {text}: world sizes go from 1 to {RANKS_MAX}, the smaller first")
    return low, high


def parse_until(text: str, scenarios: Sequence[Scenario] = ()) -> Target:
    """`deadlock`, `deadlock/cycle`, `cycle` or any of them with `@rank=3`. Raises UsageError.

    scenarios: whose own checkers may be named as well.
    """
    name, _, at = text.strip().partition("@")
    if not name and not at:
        raise UsageError(f"--until {text!r}: give a kind of finding, such as deadlock@rank=3")
    rank = None
    if at or text.endswith("@"):
        match = re.fullmatch(r"rank=(\d+)", at)
        if match is None:
            raise UsageError(f"--until {text}: after @ write rank=N, such as deadlock@rank=3")
        rank = int(match[1])
    own = [checker for scenario in scenarios for checker in scenario.checkers]
    checkers = {checker.name for checker in (*CHECKERS, RACES, *own)}
    known = checkers | set(LIKELY) | {kind.split("/")[1] for kind in LIKELY}
    # An exception's kind is its class's name, so that set is open.
    if name and name not in known and not name.startswith("exceptions/"):
        raise UnknownName("checker or kind of finding", name, known)
    return Target(name, rank)


def scenarios_of(wanted: Wanted) -> list[Scenario]:
    """The scenarios to hunt: those named, else those that have the mutant, else all of ours."""
    if wanted.targets:
        named = [
            one for target in wanted.targets
            for one in registry.find_all(target, wanted.kind, wanted.argv, cuda=wanted.cuda)
        ]
        found = list({scenario.name: scenario for scenario in named}.values())
        for scenario in found:
            registry.mutant_of(scenario, wanted.bug)
        return _runnable(found)
    everything = [one for one in registry.scenarios().values() if one.subject is None]
    if wanted.bug is None:
        if not everything:
            raise UsageError("no scenario is registered; name a file, such as ring.py")
        return _runnable(everything)
    having = [scenario for scenario in everything if wanted.bug in scenario.mutants]
    if not having:
        raise UnknownName("mutant", wanted.bug, {m for s in everything for m in s.mutants})
    return having


def _runnable(scenarios: list[Scenario]) -> list[Scenario]:
    """Those that can run on this machine; the others are named. Raises NotHere if there are none."""
    missing = {scenario.name: scenario.missing for scenario in scenarios}
    left_out = [f"{name} cannot run here: {why}" for name, why in missing.items() if why]
    if len(left_out) == len(scenarios):
        raise NotHere("; ".join(left_out))
    for line in left_out:
        complain(line, prefix="left out: ")
    return [scenario for scenario in scenarios if not missing[scenario.name]]


def orders_of(wanted: Wanted, root_seed: int) -> list[Order]:
    """One Order a scenario, checked. Raises UsageError."""
    if wanted.minutes is not None and wanted.plans is not None:
        raise UsageError("--minutes and --plans: give one of them")
    if wanted.minutes is not None and not wanted.minutes > 0:
        raise UsageError(f"--minutes {wanted.minutes:g}: give more than 0")
    if wanted.delivery not in ("relaxed", "eager"):
        raise UnknownName("delivery", wanted.delivery, ("relaxed", "eager"))
    if wanted.torn not in (None, *TORN):
        raise UsageError(f"--torn {wanted.torn}: choose one of: {', '.join(map(str, TORN))}")
    for name in wanted.faults:
        fault_type(name)
    ranks = parse_ranks(wanted.ranks) if wanted.ranks is not None else None
    orders = []
    scenarios = scenarios_of(wanted)
    until = parse_until(wanted.until, scenarios) if wanted.until is not None else Target()
    for scenario in scenarios:
        low, high = scenario.ranks
        if ranks is not None and not low <= ranks[0] <= ranks[1] <= high:
            if not wanted.targets and ranks[0] <= high and low <= ranks[1]:
                pass  # not named, so it takes part with the worlds it has
            else:
                raise UsageError(f"--ranks {wanted.ranks}: {scenario.worlds}")
        top = min(high, ranks[1]) if ranks else (scenario.usual_ranks or scenario.ranks)[1]
        if until.rank is not None and until.rank >= top:
            raise UsageError(f"--until {wanted.until}: the ranks are 0..{top - 1}")
        orders.append(
            Order(
                scenario=scenario,
                root_seed=root_seed,
                bug=wanted.bug,
                faults=wanted.faults,
                each=wanted.each,
                ranks=ranks,
                delivery=wanted.delivery,
                torn=wanted.torn,
                caches=wanted.caches,
                plans_max=wanted.plans,
                until=until,
            )
        )
    return orders


# Hunting ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """One finding as it was reported. seed_file is None when it could not be written."""

    outcome: Outcome
    finding: Finding
    minimised: Minimised | None
    text: str
    seed_file: str | None


class _Session:
    """One call of the command."""

    def __init__(self, wanted: Wanted, root_seed: int) -> None:
        self.wanted = wanted
        self.root_seed = root_seed
        self.output = Output(json=wanted.json)
        self.interrupt = Interrupt()
        self.hunts: list[Hunt] = []
        self.found: dict[int, _Found] = {}  # by index in hunts
        self.slot: Slot | None = None
        self.problem: UsageError | None = None

    def hunt_all(self, orders: list[Order]) -> bool:
        """Every order in turn, the time divided evenly; False when Ctrl-C ended it."""
        seconds = None
        if self.wanted.plans is None:
            minutes = self.wanted.minutes
            seconds = SECONDS_DEFAULT if minutes is None else 60 * minutes
        deadline = now() + seconds if seconds is not None else 0.0
        for index, order in enumerate(orders):
            if seconds is not None:
                share = max(deadline - now(), 0.0) / (len(orders) - index)
                order = replace(order, seconds=share)
            minimising = now()
            if not self.hunt_one(order):
                return False
            if index in self.found:  # minimising does not take the others' time
                hunted = self.hunts[index].statistics.seconds
                deadline += max(now() - minimising - hunted, 0.0)
        return True

    def hunt_one(self, order: Order) -> bool:
        """One hunt and what follows from its finding; False when Ctrl-C ended it."""
        with Progress(title(order), len(self.found)) as progress:

            def before_plan(plan: Plan, explorer: str) -> None:
                self.interrupt.check()
                if self.slot is not None:
                    again = command(order, progress.statistics.plans + 1)
                    self.slot.write(InFlight(encode(plan).decode(), explorer, again))

            try:
                result = hunt(order, progress.update, before_plan)
                if self.interrupt.count > 1:
                    raise Interrupted
            except (Interrupted, KeyboardInterrupt):
                self.hunts.append(Hunt(order, progress.statistics, None, None))
                return False
            finally:
                if self.slot is not None:
                    self.slot.clear()
            self.hunts.append(result)
            if result.outcome is None or result.finding is None:
                return True
            progress.minimising()
            minimised = self.minimise(result)
        self.keep(result, minimised)
        return not self.interrupt.count

    def minimise(self, result: Hunt) -> Minimised | None:
        """The smallest plan of a finding; None when Ctrl-C ended the search or nothing repeats."""
        assert result.outcome is not None
        assert result.finding is not None
        if self.wanted.minimise_seconds <= 0 or not repeatable(result.outcome):
            return None
        scenario = self.interrupt.stopping(result.order.scenario)
        try:
            found = minimise(
                result.outcome, result.finding, scenario, seconds=self.wanted.minimise_seconds
            )
            outcome = checked(found.outcome, found.finding, scenario)
        except (Interrupted, KeyboardInterrupt, EngineError):  # EngineError: a run did not repeat
            return None
        if not repeatable(outcome):
            found = replace(found, outcome=outcome, proven=False, why="its plan does not repeat")
        return None if self.interrupt.count > 1 else found

    def keep(self, result: Hunt, minimised: Minimised | None) -> None:
        """Report a finding and leave its folder."""
        scenario = result.order.scenario
        outcome = minimised.outcome if minimised else result.outcome
        finding = minimised.finding if minimised else result.finding
        assert outcome is not None
        assert finding is not None
        name = folder.name_of(outcome, finding)
        seed_file = (self.wanted.out / name / "seed.json").as_posix()
        say = self.output.say
        try:
            path, _ = folder.leave(
                self.wanted.out,
                outcome,
                finding,
                scenario,
                minimised,
                root_seed=self.root_seed,
                explorer=result.explorer,
            )
        except UsageError as error:
            self.problem = error
            text = report(outcome, finding, scenario, minimised, width=width())
            say(f"\n{text}\n")
            self.found[len(self.hunts) - 1] = _Found(outcome, finding, minimised, text, None)
            return
        text = report(
            outcome, finding, scenario, minimised, replay=shlex.quote(seed_file), width=width()
        )
        say(f"\n{text}\n")
        say(f"kept in {path.as_posix()}/ (report, seed, log of each rank, stacks, timeline)\n")
        self.found[len(self.hunts) - 1] = _Found(outcome, finding, minimised, text, seed_file)

    def exit_code(self) -> int:
        """FAIL before UNKNOWN before PASS, as an exit code."""
        return EXIT[max((verdict_of(hunt) for hunt in self.hunts), default=Verdict.UNKNOWN)]

    def data(self, code: int) -> dict[str, Any]:
        """The --json object."""
        rows = []
        for index, one in enumerate(self.hunts):
            row = plain(one)
            found = self.found.get(index)
            row["finding"] = found and {
                **finding_data(found.finding),
                "seed_file": found.seed_file,
                "token": token_of(found.outcome.plan),
                "proven_minimal": found.minimised is not None and found.minimised.proven,
                "report": found.text,
            }
            rows.append(row)
        return {"root_seed": self.root_seed, "exit_code": code, "hunts": rows}


def finding_data(finding: Finding) -> dict[str, Any]:
    """A finding as plain data, for --json."""
    return {
        "identity": finding.identity,
        "name": finding.name,
        "rank": finding.rank,
        "message": finding.message,
        "evidence": list(finding.evidence),
        "cause": finding.cause,
        "remedy": finding.remedy,
        "consequences": list(finding.consequences),
        "graph": list(finding.graph),
    }


def announce_left(slot: Slot | None) -> None:
    """Say what plan an earlier process died in, if one did, and forget it."""
    if slot is None or slot.left is None:
        return
    left = slot.left
    complain(
        f"an earlier hunt died while a plan was in flight (explorer {left.explorer}); replay it:\n"
        f"  rankfault replay {token_of_json(left.plan.encode())}\n"
        f"or hunt up to that plan again:\n  {left.command}"
    )
    slot.clear()


def run_hunt(wanted: Wanted) -> int:
    """The whole command; returns its exit code."""
    root_seed = fresh_seed() if wanted.root_seed is None else wanted.root_seed
    orders = orders_of(wanted, root_seed)
    session = _Session(wanted, root_seed)
    with session.interrupt:
        session.output.say(f"root seed {root_seed}")
        session.slot = open_slot()
        announce_left(session.slot)
        try:
            finished = session.hunt_all(orders)
        finally:
            if session.slot is not None:
                session.slot.close()
    code = session.exit_code() if finished else STOPPED
    say = session.output.say
    say(summary(session.hunts, width=width()))
    if not finished:
        say("stopped with Ctrl-C; this is what was done so far")
    seeds = [found.seed_file or token_of(found.outcome.plan) for found in session.found.values()]
    if finished or seeds:
        first = seeds[0] if seeds else None
        say(f"next: {next_command(session.hunts, first, wanted.targets)}")
    session.output.give(session.data(code))
    if session.problem is not None:  # the finding counts; its seed is the token above
        complain(one_line(session.problem))
    return code
