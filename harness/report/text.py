"""The report of a finding as text, the same from the command line and from pytest.

In this order: the property and the evidence, the first failing rank, what was drawn, the timeline,
the likely cause and remedy, consequences, whether the plan is proven minimal, and as the last line
one command to paste. Plain text: no colours, no clock, no time taken.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from harness.corpus import token_of
from harness.finding import Finding, Outcome
from harness.report.timeline import ROWS_MAX, timeline
from harness.scenario import Scenario

if TYPE_CHECKING:
    from harness.minimise import Minimised
from harness.plan import Visibility

PROPERTIES = {
    "integrity": "every result equals the reference, and nothing is written outside its window",
    "deadlock": "every rank returns: each wait is met sooner or later",
    "lifetime": "memory lives, and keeps its content, as long as an operation uses it",
    "matching": "all ranks make the same collective calls in the same order",
    "progress": "every run comes to an end by itself",
    "races": "whatever order the operations allow, accesses to the same bytes are ordered",
    "store": "a hit holds the bytes that were dumped, and what was stored is found again",
    "rendezvous": "what is acknowledged is there, and every call ends within its timeout",
    "linearizable": "what all clients saw could have happened in one order",
    "durable": "what is acknowledged is durable, and what gets its name is whole",
    "torch": "ranks make the same collectives in the same order, and tensors in flight are left alone",
    "pld": "the program keeps the rules of PyPTO's compiler and runtime",
    "golden": "the program's own check of its result holds, whatever the schedule",
    "process_group": "each survivor gets the right result, or an error within its time limit",
    "exceptions": "no rank program raises, and neither does the host program",
}
WIDTH = 80
WIDTH_MIN = 40


def report(
    outcome: Outcome,
    finding: Finding,
    scenario: Scenario,
    minimised: Minimised | None = None,
    *,
    replay: str | None = None,
    width: int = WIDTH,
    full: bool = False,
) -> str:
    """The whole report of `finding`, which `outcome` shows.

    replay: the seed file that the command names; a token of the plan by default. width: columns.
    full: every event in the timeline.
    """
    width = max(width, WIDTH_MIN)
    page = _Page(width)
    plan = outcome.plan
    who = scenario.name if plan.bug is None else f"{scenario.name} with mutant {plan.bug}"
    page.line(f"FAIL {finding.name} in {who}")
    page.section("Property", PROPERTIES.get(finding.checker, finding.checker))
    page.section("Finding", finding.message)
    page.section("Evidence", *finding.evidence)
    rank = f"rank {finding.rank} of {plan.ranks}" if finding.rank >= 0 else "the host program"
    page.section("First failing rank", rank)
    page.section("Drawn", *drawn(outcome))
    rows = None if full else ROWS_MAX
    page.raw("Timeline", timeline(outcome.run, finding, width=width - 2, rows_max=rows))
    page.tree("Who waits for whom", *finding.graph)
    if finding.traceback:
        page.raw("Traceback", finding.traceback.rstrip().splitlines())
    page.section("Likely cause", finding.cause)
    page.section("Remedy", finding.remedy)
    page.section("Consequences", *finding.consequences)
    others = [other.message for other in outcome.findings if other.identity != finding.identity]
    page.section("Also found in this run", *others)
    page.section("Notes", *outcome.notes)
    page.section("Minimal", proof(minimised))
    page.line("")
    page.line(f"rankfault replay {replay or token_of(plan)}")
    return "\n".join(page.lines)


def proof(minimised: Minimised | None) -> str:
    """Whether the plan is the smallest one, and how that is known."""
    if minimised is None:
        return ""
    return f"{'proven' if minimised.proven else 'not proven'}: {minimised.why}"


def drawn(outcome: Outcome) -> list[str]:
    """What the plan fixed, each as the code that makes it; defaults of the plan are left out."""
    plan = outcome.plan
    lines = [f"scenario = {plan.scenario!r}"]
    if plan.bug is not None:
        lines.append(f"bug = {plan.bug!r}")
    lines += [
        f"ranks = {plan.ranks}",
        f"params = {plan.params!r}",
        f"faults = {list(plan.faults)!r}",
        f"schedule = {list(plan.schedule)!r}",
    ]
    if plan.crash is not None:
        lines.append(f"crash = {plan.crash!r}")
    if plan.visibility != Visibility():
        lines.append(f"visibility = {plan.visibility!r}")
    return lines


class _Page:
    """Lines of at most `width` columns, in titled sections."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        """One line as it is; only a command or a name may be longer than the page."""
        self.lines.append(text)

    def section(self, title: str, *texts: str) -> None:
        """A title with wrapped paragraphs below; nothing when there are none."""
        said = [text for text in texts if text]
        if not said:
            return
        wrapped: list[str] = []
        for text in said:
            wrapped += textwrap.wrap(
                text,
                self.width,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
        self.lines += ["", title, *wrapped]

    def tree(self, title: str, *texts: str) -> None:
        """As `section`, for lines that keep their indentation."""
        if texts:
            self.lines += ["", title]
        for text in texts:
            lead = " " * (len(text) - len(text.lstrip()) + 2)
            self.lines += textwrap.wrap(
                text.strip(), self.width, initial_indent=lead, subsequent_indent=f"{lead}  ",
                break_on_hyphens=False,
            )

    def raw(self, title: str, lines: list[str]) -> None:
        """A title with lines that must not be wrapped."""
        self.lines += ["", title, *(f"  {text}".rstrip() for text in lines)]
