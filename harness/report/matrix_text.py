"""The detection matrix as text: what is wrong first, then the tables, then what they add up to."""

from __future__ import annotations

import shlex
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from harness.matrix import FAILING, UNPROVEN, Row, Status, counted, in_order, percentile95
from harness.report.text import WIDTH, WIDTH_MIN

HEADINGS: dict[Status, str] = {
    "survived": "Survivors",
    "false_alarm": "False alarms",
    "misdeclared": "Not as declared",
    "unknown": "UNKNOWN",
    "not_run": "Not run",
}
TABLED = 80  # columns from which bugs stand in a table
NAME = 24
FINDING = 31
COLUMNS = "plans  p95   P shrunk"
LEGEND = (
    "plans: median number of plans to detection (a miss counts as one more than the limit), p95: its "
    "95th percentile; P: smallest world seen to show it; shrunk: ranks + deviations of the smallest "
    "counterexample, ? where that is not proven minimal"
)


def title(row: Row) -> str:
    """What the row is about, in words."""
    return f"{row.scenario} {row.kind} {row.name}".rstrip()


def command(row: Row) -> str:
    """The command line that hunts for the row's bug again."""
    words = ["rankfault", "hunt", row.scenario]
    if row.name:
        words += ["--bug" if row.kind == "mutant" else "--fault", row.name]
    seeds = row.missed or row.root_seeds
    if seeds:
        words += ["--root-seed", str(seeds[0]), "--plans", str(row.plans_max)]
    return shlex.join(words)


def replay(row: Row) -> str:
    """The command line that replays the row's smallest counterexample; empty without one."""
    return f"rankfault replay {row.shrunk.token}" if row.shrunk else ""


def plain(rows: Iterable[Row]) -> dict[str, Any]:
    """The --json object."""
    ordered = in_order(rows)
    count = Counter(row.status for row in ordered)
    return {
        "rows": [{**msgspec.to_builtins(row), "command": command(row)} for row in ordered],
        "survivors": count["survived"],
        "false_alarms": count["false_alarm"],
    }


def summary(rows: Sequence[Row]) -> list[str]:
    """What the rows add up to, a line each."""
    bugs = [row for row in rows if row.kind in ("mutant", "fault") and row.plans]
    count = Counter(row.kind for row in rows)
    states = Counter(row.status for row in rows)
    pairs = counted(count["fault"], "(scenario, bug fault) pair")
    where = counted(len({row.scenario for row in rows}), "scenario")
    lines = [
        f"{counted(count['mutant'], 'mutant')} and {pairs} in {where}: "
        f"{sum(not row.missed for row in bugs)} caught, {counted(states['survived'], 'survivor')}"
    ]
    plans = [number for row in bugs for number in row.plans]
    if plans:
        lines.append(
            f"plans to detection: median {statistics.median(plans):g}, 95th percentile "
            f"{percentile95(plans)}, most {max(plans)}, in {counted(len(plans), 'hunt')}"
        )
    shrunk = [row for row in bugs if row.shrunk]
    if shrunk:
        told = [
            f"{sum(row.shrunk is not None and row.shrunk.proven for row in some)} of {len(some)} {what}"
            for what, some in (
                ("mutants", [row for row in shrunk if row.kind == "mutant"]),
                ("faults", [row for row in shrunk if row.kind == "fault"]),
            ) if some
        ]
        lines.append(f"counterexamples proven minimal: {', '.join(told)}")
    small = [row for row in shrunk if row.declared_ranks]
    if small:
        there = sum(row.shrunk is not None and row.shrunk.ranks == row.declared_ranks for row in small)
        lines.append(f"mutants shrunk to the world that they declare: {there} of {len(small)}")
    equivalents = [row for row in rows if row.kind == "equivalent"]
    if equivalents:
        plans_run = sum(row.plans_run for row in equivalents if row.status == "equivalent")
        lines.append(
            f"declared equivalents: {len(equivalents)}, of which {states['equivalent']} verified in "
            f"{counted(plans_run, 'plan')}"
        )
    lines += _of_twins([row for row in rows if row.kind == "twin"])
    for status in ("misdeclared", "unknown", "not_run"):
        if states[status]:
            lines.append(f"{HEADINGS[status].lower()}: {counted(states[status], 'row')}")
    return lines


def _of_twins(twins: Sequence[Row]) -> list[str]:
    if not twins:
        return []
    alarms = sum(row.status == "false_alarm" for row in twins)
    plans = sum(row.plans_run for row in twins)
    fired: Counter[str] = Counter()
    for row in twins:
        fired.update(row.fired)
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(fired.items())) or "nothing"
    return [
        f"twins: {len(twins)}, {counted(alarms, 'false alarm')} in {counted(plans, 'plan')}; "
        f"fired: {told}"
    ]


def render(rows: Iterable[Row], *, width: int = WIDTH, notes: Sequence[str] = ()) -> str:
    """The whole matrix for a terminal or a file; no control characters. notes: further last lines."""
    width = max(width, WIDTH_MIN)
    ordered = in_order(rows)
    lines: list[str] = []
    for status in (*FAILING, *UNPROVEN):
        lines += _wrong(status, [row for row in ordered if row.status == status], width)
    bugs = [row for row in ordered if row.kind in ("mutant", "fault") and row.plans]
    if bugs:
        lines += _bugs(bugs, width)
    equivalents = [row for row in ordered if row.status == "equivalent"]
    if equivalents:
        lines += ["Declared equivalents, verified"]
        for row in equivalents:
            told = f"{row.fired.get(row.name, 0)} of {counted(row.plans_run, 'plan')} with it"
            lines += _wrapped(f"{row.scenario} {row.name}: {told}; {row.declared[0]}", width, 2)
        lines.append("")
    twins = [row for row in ordered if row.status == "clean"]
    if twins:
        lines += ["Twins without a finding"]
        for row in twins:
            runs = counted(row.distinct_runs, "distinct run")
            lines += _wrapped(f"{row.scenario}: {counted(row.plans_run, 'plan')}, {runs}", width, 2)
        lines.append("")
    for text in (*summary(ordered), *notes):
        lines += _wrapped(text, width, 0)
    return "\n".join(_printable(line) for line in lines)


def _printable(line: str) -> str:
    """An exception's text may carry anything."""
    return "".join(char if char.isprintable() else "?" for char in line)


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    """Lines of at most `width`; continued four columns further in."""
    first = " " * indent
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=first + "    ",
        break_on_hyphens=False,
    )


def _wrong(status: Status, rows: Sequence[Row], width: int) -> list[str]:
    """One kind of what is wrong: each row with its reason and a command to look into it."""
    if not rows:
        return []
    lines = [f"{HEADINGS[status]}: {len(rows)}"]
    if status == "not_run":  # all for one reason
        return [*lines, *_wrapped(rows[0].reason, width, 2), ""]
    for row in rows:
        lines += _wrapped(f"{title(row)}: {row.reason}", width, 2)
        # Never wrapped: a command is there to be copied.
        lines.append(f"    {replay(row) if row.shrunk and not row.missed else command(row)}")
    return [*lines, ""]


def _bugs(rows: Sequence[Row], width: int) -> list[str]:
    """Every mutant and fault, by scenario."""
    by: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.scenario, row.kind != "mutant", row.name)):
        by.setdefault(row.scenario, []).append(row)
    lines = []
    for scenario, mine in by.items():
        lines.append(scenario)
        kind = ""
        for row in mine:
            if width < TABLED:
                lines += _wrapped(f"{row.kind} {row.name}: {_in_words(row)}", width, 2)
                continue
            if row.kind != kind:
                lines.append(f"  {row.kind.ljust(NAME)} {'caught by'.ljust(FINDING)} {COLUMNS}")
                kind = row.kind
            lines += _tabled(row)
        lines.append("")
    if width >= TABLED:
        lines += [*_wrapped(LEGEND, width, 0), ""]
    return lines


def _tabled(row: Row) -> list[str]:
    """One row of the table; a name that is too long stands above it, further findings below."""
    found = list(row.found) or ["nothing"]
    name, lines = row.name, []
    if len(name) > NAME:
        lines.append(f"  {name}")
        name = ""
    numbers = f"{row.median:5g} {row.percentile95:4} {row.smallest_ranks or '-':>3} {_size(row)}"
    lines.append(f"  {name.ljust(NAME)} {_cut(found[0], FINDING).ljust(FINDING)} {numbers}")
    return lines + [f"  {''.ljust(NAME)} {_cut(name, FINDING)}" for name in found[1:]]


def _size(row: Row) -> str:
    one = row.shrunk
    return f"{one.ranks}+{one.deviations}{'' if one.proven else '?'}" if one else "-"


def _in_words(row: Row) -> str:
    by = ", ".join(row.found) or "nothing"
    told = f"caught by {by}; plans {row.median:g}, p95 {row.percentile95}"
    if row.smallest_ranks:
        told += f"; from P={row.smallest_ranks} on"
    if row.shrunk:
        proven = "proven minimal" if row.shrunk.proven else "not proven minimal"
        deviations = counted(row.shrunk.deviations, "deviation")
        told += f"; shrunk to {counted(row.shrunk.ranks, 'rank')}, {deviations}, {proven}"
    return told


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
