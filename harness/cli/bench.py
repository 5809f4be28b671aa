"""`rankfault bench`: the figures. Their code is in the repository, not in the installed package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from harness.cli.output import Output, table, width
from harness.errors import UnknownName, UsageError

ROOT = Path(__file__).resolve().parents[2]
_MET = {True: "met", False: "not met", None: "for information"}


def run_bench(names: list[str], *, full: bool, json: bool) -> int:
    """Measure the named figures (all by default); returns the exit code."""
    if not (ROOT / "benchmarks" / "__init__.py").exists():
        raise UsageError(
            "bench needs the repository: the folder benchmarks/ is no part of the installed package"
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    benchmarks = importlib.import_module("benchmarks")
    for name in names:
        if name not in benchmarks.NAMES:
            raise UnknownName("figure", name, benchmarks.NAMES)
    output = Output(json=json)
    rows = benchmarks.run(names, full)
    output.say(
        "\n".join(
            table(
                [
                    (
                        str(row["name"]),
                        f"{row['value']} {row['unit']} (goal {row['goal']}: {_MET[row['met']]})",
                    )
                    for row in rows
                ],
                width(),
            )
        )
    )
    output.give(rows)
    return 0
