"""`rankfault list`: what can be named on the command line."""

from __future__ import annotations

import inspect
from typing import Any

from harness import registry
from harness.checkers import CHECKERS, RACES
from harness.cli.output import Output, table, width
from harness.diagnosis.table import LIKELY
from harness.errors import UnknownName
from harness.report.text import PROPERTIES

KINDS = ("scenarios", "mutants", "faults", "checkers")


def run_list(what: str, *, json: bool) -> int:
    """The list command; returns its exit code."""
    output = Output(json=json)
    if what == "scenarios":
        rows = _scenarios()
    elif what == "mutants":
        rows = _mutants()
    elif what == "faults":
        rows = _faults()
    elif what == "checkers":
        rows = _checkers()
    else:
        raise UnknownName("list", what, KINDS)
    output.say("\n".join(table([(row["name"], row["text"]) for row in rows], width())))
    output.give(rows)
    return 0


def _first(doc: str | None) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join((doc or "").split("\n\n")[0].split())


def _scenarios() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "text": f"{_first(one.doc)} {one.ranks[0]}..{one.ranks[1]} ranks."
            + (f" Not here: {one.missing}." if one.missing else ""),
            "ranks": list(one.ranks),
            "mutants": sorted(one.mutants),
        }
        for name, one in registry.scenarios().items()
    ]


def _mutants() -> list[dict[str, Any]]:
    return [
        {
            "name": mutant.name,
            "scenario": name,
            "expects": mutant.expects,
            "ranks": mutant.ranks,
            "text": f"{name}: {_first(mutant.doc)} Expected: {mutant.expects}, from "
            f"world size {mutant.ranks} on.",
        }
        for name, one in registry.scenarios().items()
        for mutant in one.mutants.values()
    ]


def _faults() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "family": fault.family,
            "text": f"{fault.family}: {_first(inspect.getdoc(fault))}",
        }
        for name, fault in sorted(
            registry.faults().items(), key=lambda pair: (pair[1].family != "environment", pair[0])
        )
    ]


def _checkers() -> list[dict[str, Any]]:
    rows = []
    own = {one.name: one for each in registry.scenarios().values() for one in each.checkers}
    for checker in (*CHECKERS, RACES, *own.values()):
        kinds = [name.split("/")[1] for name in LIKELY if name.startswith(f"{checker.name}/")]
        text = f"{PROPERTIES.get(checker.name, '')}. Kinds: {', '.join(kinds)}."
        rows.append({"name": checker.name, "kinds": kinds, "text": text})
    return rows
