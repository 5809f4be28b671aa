"""House rules that a machine can hold: arrows, sizes, doors, names, docstrings, links, paths."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("harness", "faults", "systems", "scenarios")
PACKAGES = (*SOURCES, "tests", "benchmarks")
LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TEXT = {".py", ".md", ".toml", ".txt", ".json", ".cfg", ".yml", ".yaml", ".ini", ".sh", ""}

# What each package may import of this project. `harness` itself means its public names only.
ARROWS = {
    "harness": {"harness"},
    "faults": {"faults", "harness"},
    "systems": {"systems", "harness"},
    "scenarios": {"scenarios", "faults", "systems", "harness"},
}
DOORS = {"time", "random", "uuid", "datetime", "secrets", "threading", "_thread"}
MAY_OPEN = {
    "harness/ambient.py": {"time", "random", "threading"},
    "harness/fabric/carrier.py": {"threading"},  # the watchdog, and pools of greenlets by thread
    "harness/fabric/threads.py": {"threading"},  # lanes on threads
    "harness/cli/interrupt.py": {"threading"},  # signals arrive in the main thread only
    "systems/store/real.py": {"time", "threading"},  # the real ports
    # What runs in a subject process only: a store's own loop. datetime: the type of a timeout in c10d.
    "scenarios/store/adapters/lmcache_store.py": {"time", "threading"},
    "scenarios/rendezvous/c10d.py": {"datetime"},
    "harness/frontends/torch_distributed/backend.py": {"datetime"},
    "harness/frontends/torch_distributed/handles.py": {"datetime"},
    "harness/frontends/torch_distributed/stores.py": {"datetime"},
    "harness/frontends/torch_distributed/world.py": {"datetime"},
    # What runs in a rank's real process, behind torch's own threads; the type of a time-out.
    "harness/frontends/torch_distributed/late_work.py": {"threading", "datetime"},
    "harness/frontends/torch_distributed/interposed.py": {"datetime"},
    # The doors of a program's threads.
    "harness/frontends/torch_distributed/lane_locks.py": {"threading"},
    "harness/frontends/torch_distributed/rank_threads.py": {"threading"},
    "harness/fabric/torchrun.py": {"datetime"},
}
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}

# Modules whose tests have another name or place, with the reason.
TESTED_ELSEWHERE = {
    "harness/errors.py": "its errors are raised, and their texts compared, by all the others",
    "harness/run.py": "every scenario, fault and mutant test goes through it",
    "harness/disk_tree.py": "test_simulated_disk, beside the real file system",
    "harness/disk_files.py": "test_simulated_disk",
    "harness/crash_log.py": "test_crash_states, beside a brute-force enumerator",
    "harness/crash_sets.py": "test_crash_states",
    "harness/finding.py": "the checkers' tests compare its values",
    "harness/fabric/simulated.py": "test_delivery, test_schedule, test_polling, test_unwinding",
    "harness/fabric/flight.py": "test_delivery",
    "harness/fabric/choosing.py": "test_schedule",
    "harness/fabric/late_lanes.py": "test_rank_threads: programs whose threads they are",
    "harness/fabric/frames.py": "test_unwinding, test_scenario: whose line an error names",
    "harness/fabric/one_sided.py": "test_operations, test_delivery",
    "harness/fabric/windows.py": "test_operations",
    "harness/fabric/simulated_rank.py": "test_operations, test_entry_checks",
    "harness/fabric/memory.py": "test_operations, test_entry_checks",
    "harness/fabric/execute.py": "tests/harness/test_host.py, test_unwinding, test_determinism",
    "harness/fabric/conductor.py": "tests/conformance: the same record as the simulated fabric's",
    "harness/fabric/intake.py": "tests/conformance",
    "harness/fabric/natural.py": "test_processes, tests/conformance",
    "harness/fabric/rank_engine.py": "test_processes, tests/conformance",
    "harness/fabric/rank_lanes.py": "tests/conformance: programs with several lanes",
    "harness/fabric/rank_natural.py": "test_processes, tests/conformance: natural order",
    "harness/fabric/rank_process.py": "test_processes, tests/conformance",
    "harness/frontends/torch_distributed/testing.py": "tests/frontends/test_running.py",
    "harness/fabric/script_rank.py": "test_real_ranks: what a script finds, and how it ends",
    "harness/subject_child.py": "test_subject: every way in which a subject ends",
    "harness/subject_place.py": "test_power_cut: another Python, a disk that only the subject sees",
    "harness/zygote.py": "test_supervise, test_subject: whatever is forked comes from it",
    "harness/subject_wire.py": "test_subject: values and tensors that come back as they went",
    "harness/positions.py": "test_pytest_plugin: what is printed when a time limit strikes",
    "harness/pytest_seeds.py": "test_pytest_plugin: seed files as items",
    "harness/portfolio.py": "test_hunt: every plan of a hunt comes from it",
    "harness/trial.py": "test_matrix: what counts as evidence",
    "harness/frontends/torch_distributed/handles.py": "test_backend, test_exchange",
    "harness/frontends/torch_distributed/issuing.py": "test_backend: what is refused at the call",
    "harness/frontends/torch_distributed/place.py": "test_exchange, test_backend",
    "harness/frontends/pypto/credits.py": "test_composites: the barriers of every collective",
    "harness/proof.py": "test_minimise: what is proven minimal",
    "harness/frontends/pypto/operands.py": "test_ops: what an operation is given",
    "harness/frontends/pypto/ops_names.py": "test_ops, test_ops_math: every name is one of theirs",
    "harness/frontends/pypto/regions.py": "test_tasks: what a region is, and where it runs",
    "harness/frontends/pypto/decorators.py": "test_functions: what each decorator makes",
    "harness/frontends/pypto/dtypes.py": "a table; every pld test names its entries",
    "harness/frontends/pypto/enums.py": "a table; test_remote and the collectives' tests use it",
    "harness/frontends/pypto/operate.py": "test_remote: every operation, and whose line it is",
    "harness/frontends/pypto/programs.py": "test_scenarios: mains and tests, run and asked again",
}
# Folders whose test files are named after what they show, not after each module.
TESTED_BY_FOLDER = ("checkers", "cli", "diagnosis", "report", "schedule")


def sources():
    """Every Python file of the product, relative to the root."""
    return sorted(
        path.relative_to(ROOT)
        for name in SOURCES
        for path in (ROOT / name).rglob("*.py")
        if "__pycache__" not in path.parts
    )


def tracked():
    """Every text file that is in the repository or would be added to it."""
    told = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if told.returncode == 0:
        paths = [ROOT / line for line in told.stdout.splitlines()]
    else:  # a copy without its history
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(
                part.startswith(".") or "egg-info" in part for part in path.relative_to(ROOT).parts
            )
        ]
    return sorted(path for path in paths if path.is_file() and path.suffix in TEXT)


@functools.cache
def parsed(path):
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def imports(tree):
    """(module, names, line) of every import, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, (), node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield node.module, tuple(alias.name for alias in node.names), node.lineno


each_part = pytest.mark.parametrize("part", SOURCES)


def sources_of(part):
    return [path for path in sources() if path.parts[0] == part]


def test_there_is_something_to_look_at():
    assert len(sources()) > 40
    assert len(tracked()) > 60


@each_part
def test_imports_follow_the_arrows(part):
    for path in sources_of(part):
        for module, _, line in imports(parsed(path)):
            top = module.split(".")[0]
            if top in PACKAGES:
                assert top in ARROWS[part], f"{path}:{line}: {part} must not import {module}"
            if part != "harness" and top == "harness":
                assert module == "harness", (
                    f"{path}:{line}: {part} uses the public names only: from harness import …"
                )


@each_part
def test_time_and_randomness_have_one_door(part):
    for path in sources_of(part):
        for module, names, line in imports(parsed(path)):
            top = module.split(".")[0]
            if top in DOORS:
                assert top in MAY_OPEN.get(path.as_posix(), ()), (
                    f"{path}:{line}: {top}: use harness.ambient"
                )
            assert not (module == "os" and "urandom" in names), f"{path}:{line}: use harness.ambient"


@each_part
def test_modules_and_functions_stay_small(part):
    for path in sources_of(part):
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        assert lines <= LINES_MAX, f"{path} has {lines} lines; {LINES_MAX} at most"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                where = f"{path}:{node.lineno}: {node.name}"
                assert length <= FUNCTION_LINES_MAX, f"{where} has {length} lines; 70 at most"


def public_definitions(body, prefix=""):
    """Public functions, classes and methods, by their dotted names."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.startswith("_"):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body, f"{prefix}{node.name}.")


@each_part
def test_modules_and_public_definitions_have_docstrings(part):
    for path in sources_of(part):
        tree = parsed(path)
        if tree.body:
            assert ast.get_docstring(tree), f"{path}: the module docstring says purpose and model"
        for name, node in public_definitions(tree.body):
            overloaded = any("overload" in ast.dump(mark) for mark in node.decorator_list)
            assert overloaded or ast.get_docstring(node), (
                f"{path}:{node.lineno}: {name} has no docstring"
            )


def test_no_drawer_has_a_name_that_says_nothing():
    for path in tracked():
        parts = {part.lower() for part in (*path.relative_to(ROOT).parts[:-1], path.stem)}
        assert not parts & BANNED_NAMES, f"{path.relative_to(ROOT)}: name it after what is in it"


def test_nothing_is_left_for_later():
    later = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not later.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_no_file_knows_one_machine():
    """Folders of somebody's computer, and hosts that packages are fetched from."""
    folders = ("home", "root", "work", "Users", "mnt", "opt/venv", "tmp/dev")
    hosts = (
        "pypi." + "org",
        "python" + "hosted",
        "download.py" + "torch",
        "arti" + "factory",
        "nexus" + "/",
    )
    flags = ("--index" + "-url", "--extra-index" + "-url", "trusted" + "-host")
    known = re.compile(
        r"(?<![\w.>…])/(?:"
        + "|".join(folders)
        + r")/|"
        + "|".join(map(re.escape, (*hosts, *flags)))
    )
    for path in tracked():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not known.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_every_relative_link_leads_somewhere():
    for path in tracked():
        if path.suffix != ".md":
            continue
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target):
                found = path.parent / target.split("#")[0]
                assert found.exists(), f"{path.relative_to(ROOT)}: link to {target}"


def test_the_front_door_is_sorted_and_complete():
    def kind_then_name(name):  # constants, classes, functions: as ruff sorts them
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert list(harness.__all__) == sorted(harness.__all__, key=kind_then_name)
    assert len(set(harness.__all__)) == len(harness.__all__)
    for name in harness.__all__:
        assert getattr(harness, name) is not None
    exported = {
        name
        for module, names, _ in imports(parsed("harness/__init__.py"))
        if module.split(".")[0] == "harness"
        for name in names
    }
    assert exported == set(harness.__all__)


def test_every_module_of_the_harness_has_its_tests():
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [
        path.as_posix()
        for path in sources()
        if path.parts[0] == "harness"
        and not path.name.startswith("__")
        and path.as_posix() not in TESTED_ELSEWHERE
        and path.parts[1] not in TESTED_BY_FOLDER
        and f"test_{path.name}" not in tests
    ]
    assert missing == [], "give each a test file of its name, or a reason in TESTED_ELSEWHERE"


def test_the_list_of_modules_tested_elsewhere_is_true():
    for name in TESTED_ELSEWHERE:
        assert (ROOT / name).is_file(), f"{name} is gone: take it off the list"
        assert not list((ROOT / "tests").rglob(f"test_{Path(name).name}")), (
            f"{name} has its own now"
        )
