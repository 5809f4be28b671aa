"""`rankfault bench`: the figures, and what systems offer to be measured.

The code of the figures is in the repository, not in the installed package; a system's own measurement
(`rankfault bench store`) is found in the packages that the entry points name.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from harness import registry
from harness.cli.output import Output, table, width
from harness.errors import UnknownName, UsageError

ROOT = Path(__file__).resolve().parents[2]
_MET = {True: "met", False: "not met", None: "for information"}


def run_bench(names: list[str], *, full: bool, options: dict[str, Any], json: bool) -> int:
    """Measure the named figures (all by default); returns the exit code."""
    offered = registry.benches() if names else {}
    mine = [name for name in names if name in offered]
    if not mine and any(options.values()):
        given = next(name for name, value in options.items() if value)
        raise UsageError(f"--{given} is for a system: rankfault bench store --{given} ...")
    others = [name for name in names if name not in offered]
    rows = [row for name in mine for row in offered[name].measure(**options)]
    if others or not names:
        rows += _figures(others, full=full, offered=tuple(offered))
    output = Output(json=json)
    output.say("\n".join(table([(str(row["name"]), _value(row)) for row in rows], width())))
    output.give(rows)
    return 0


def _value(row: dict[str, Any]) -> str:
    goal = f"goal {row['goal']}: {_MET[row['met']]}" if row["goal"] else _MET[row["met"]]
    return f"{row['value']} {row['unit']} ({goal})"


def _figures(names: list[str], *, full: bool, offered: tuple[str, ...]) -> list[dict[str, Any]]:
    if not (ROOT / "benchmarks" / "__init__.py").exists():
        raise UsageError(
            "bench needs the repository: the folder benchmarks/ is no part of the installed package"
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    benchmarks = importlib.import_module("benchmarks")
    for name in names:
        if name not in benchmarks.NAMES:
            raise UnknownName("figure", name, (*benchmarks.NAMES, *offered))
    found: list[dict[str, Any]] = benchmarks.run(names, full)
    return found
