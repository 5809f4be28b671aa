"""`rankfault selftest`: what each checker alone catches."""

from __future__ import annotations

from harness import registry
from harness.cli.output import Output, table, width
from harness.selftest import Row, selftest

SHOWN = 4  # names in a row


def run_selftest(*, json: bool) -> int:
    """The selftest command; returns its exit code."""
    output = Output(json=json)
    result = selftest(registry.scenarios().values())
    rows = [(row.checker, _text(row)) for row in result.rows]
    if result.escaped:
        rows.append(("escaped", f"not found with all checkers: {', '.join(result.escaped)}"))
    output.say("\n".join(table(rows, width())))
    output.say(f"\n{'PASS: every checker is needed' if result.passed else 'FAIL'}")
    output.give(result)
    return 0 if result.passed else 1


def _text(row: Row) -> str:
    """`without it 3 mutants survive: a, b and c; finds 4 others beside other checkers`."""
    shown = ", ".join(row.only[:SHOWN])
    more = f" and {len(row.only) - SHOWN} more" if len(row.only) > SHOWN else ""
    count = len(row.only)
    text = (
        f"without it {count} mutant{'s survive' if count != 1 else ' survives'}: {shown}{more}"
        if count else "nothing survives without it"
    )
    others = len(row.also)
    return f"{text}; {others} more are found without it too" if others else text
