"""PyPTO's own examples and distributed tests, unmodified, from the folder that RANKFAULT_PYPTO names.

Nothing of them is part of this project. `pypto_items` runs each once in the default schedule and says why
what does not pass does not; `pypto_hunt` hunts in all of them and gives each hazard with its seed, as a
token. `pypto_speed` needs no upstream: plans a second of a mesh all-reduce of our own.

Not measured: anything on a chip.
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import figure
from harness import registry
from harness.ambient import now
from harness.corpus import token_of
from harness.errors import RankfaultError, one_line
from harness.frontends.pypto.programs import MAIN, Program, item_names, program_of
from harness.hunt import Order, hunt

EXAMPLES = Path("examples/distributed")
TESTS = Path("tests/st/distributed")
CARDS = ("0,1", "0,1,2", "0,1,2,3")
MODES: dict[str, tuple[tuple[str, ...], ...]] = {  # by the first digits of an example
    "04": ((), ("--use-builtin",)),
    "05": (("--mode", "load"), ("--mode", "store")),
    "06": (("--mode", "put"), ("--mode", "get")),
    "07": tuple(("--mode", mode, "-d", cards) for mode in ("put", "get") for cards in CARDS),
}
PLANS = 10
MESH = "tests/frontends/pld_programs/correct/mesh_all_reduce.py"


@contextlib.contextmanager
def _upstream() -> Iterator[bool]:
    """In upstream's folder; False where there is none."""
    folder = os.environ.get("RANKFAULT_PYPTO", "")
    if not folder:
        yield False
        return
    with contextlib.chdir(folder):
        yield True


def pypto_items(*, full: bool) -> list[dict[str, Any]]:
    """Examples in all their modes and each test item, once."""
    del full
    with _upstream() as there:
        if not there:
            return [figure("upstream's items", "RANKFAULT_PYPTO is not set", "", "", None)]
        examples = {
            f"{path.name} {' '.join(argv)}".strip(): _why(path, argv, MAIN)
            for path in sorted(EXAMPLES.glob("0*.py")) for argv in MODES.get(path.name[:2], ((),))
        }
        items = {
            f"{path.relative_to(TESTS)}::{name}": _why(path, (), name)
            for path in sorted(TESTS.rglob("test_*.py")) for name in _names(path)
        }
    inside = {name: why for name, why in items.items() if name.startswith("collectives")}
    return [
        _passing("examples, in each mode and number of ranks", examples, len(examples)),
        _passing("items of tests/st/distributed/collectives", inside, 75),
        _passing("items of tests/st/distributed", items, 150),
        *(figure(f"  {name}", why, "", "", None) for name, why in {**examples, **items}.items() if why),
    ]


def _passing(name: str, found: dict[str, str], goal: int) -> dict[str, Any]:
    passing = sum(not why for why in found.values())
    return figure(name, passing, f"of {len(found)} pass", f">= {goal}", passing >= goal)


def _names(path: Path) -> list[str]:
    """The items of a file; of one that does not load, its test functions."""
    text = path.read_bytes()
    try:
        return item_names(str(path), text)
    except RankfaultError:
        functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        return [node.name for node in functions if node.name.startswith("test")]


def _why(path: Path, argv: tuple[str, ...], item: str) -> str:
    """Why it does not pass; empty if it does."""
    try:
        program: Program = program_of(str(path), path.read_bytes(), argv, item)
    except RankfaultError as error:
        return one_line(error)
    if program.skipped:
        return f"skipped: {program.skipped}"
    if program.raised is not None:
        return one_line(program.raised.error)
    return "" if program.calls or item != MAIN else "it calls no host function"


def pypto_hunt(*, full: bool) -> list[dict[str, Any]]:
    """Every host call of upstream's examples and tests, in a few plans each; hazards and their tokens."""
    plans, hazards, targets, start = 0, [], 0, now()
    with _upstream() as there:
        if not there:
            return [figure("upstream's hazards", "RANKFAULT_PYPTO is not set", "", "", None)]
        for folder in (EXAMPLES, TESTS):
            for scenario in registry.find_all(str(folder), "pld"):
                if scenario.missing:
                    continue
                targets += 1
                made = hunt(Order(scenario=scenario, root_seed=1, plans_max=PLANS * (10 if full else 1)))
                plans += made.statistics.plans
                if made.finding is not None and made.outcome is not None:
                    token = token_of(made.outcome.plan)
                    hazards.append(figure(f"  {scenario.name}", made.finding.name, token, "", None))
        seconds = now() - start
    return [
        figure("hunt over both folders", round(seconds), "s", "< 360", None if full else seconds < 360),
        figure("plans in it", plans, f"of {targets} host calls", "", None),
        figure("hazards found in it", len(hazards), "host calls", "", None),
        *hazards,
    ]


def pypto_speed(*, full: bool) -> list[dict[str, Any]]:
    """Plans a second of a mesh all-reduce of our own, P=2."""
    (scenario,) = registry.find_all(MESH, "pld", ("-d", "0,1"))
    made = hunt(Order(scenario=scenario, root_seed=1, plans_max=3000 if full else 500))
    rate = made.statistics.plans / made.statistics.seconds
    name = "mesh all-reduce of a pld program, P=2"
    return [figure(name, round(rate), "plans/s", ">= 300", rate >= 300)]
