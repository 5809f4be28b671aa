"""Finding scenarios, mutants and faults by name, and loading a user's file.

Entry points of group `rankfault` name packages; every module in them is imported and searched for
Scenario, Mutant, Doctor and Bench values and Fault classes. A new file needs no reinstall. A mutant
belongs to the scenario whose name is `<system>.<module>` of its file
`systems/<system>/mutants/<module>.py`.

A user's scenario is `relative/path.py` or `relative/path.py::name`; absolute paths and `..` are refused
so that a seed means the same on every machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from types import ModuleType

from harness.checkup import Bench, Doctor
from harness.errors import UnknownName, UsageError, UserFileError
from harness.frontends.kinds import Kind, kind_of
from harness.plan import Fault
from harness.scenario import Mutant, Scenario

GROUP = "rankfault"
MAIN = "__main__"


@cache
def modules() -> tuple[ModuleType, ...]:
    """Every module of the packages that the entry points name, in name order."""
    found: dict[str, ModuleType] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.value):
        package = importlib.import_module(entry.value)
        found[package.__name__] = package
        for info in pkgutil.walk_packages(getattr(package, "__path__", ()), package.__name__ + "."):
            found[info.name] = importlib.import_module(info.name)
    return tuple(found[name] for name in sorted(found))


@cache
def faults() -> dict[str, type[Fault]]:
    """Every fault by its tag."""
    found: dict[str, type[Fault]] = {}
    for module in modules():
        for value in vars(module).values():
            if (
                isinstance(value, type) and issubclass(value, Fault) and value is not Fault
                and value.__module__ == module.__name__ and not value.__name__.startswith("_")
            ):
                found[str(value.__struct_config__.tag)] = value
    return dict(sorted(found.items()))


@cache
def _mutants() -> dict[str, dict[str, Mutant]]:
    """Mutants by scenario name, then by their own."""
    found: dict[str, dict[str, Mutant]] = {}
    for module in modules():
        parts = module.__name__.split(".")
        if "mutants" not in parts[:-1]:
            continue
        scenario = f"{parts[-3]}.{parts[-1]}"
        for value in vars(module).values():
            if isinstance(value, Mutant):
                found.setdefault(scenario, {})[value.name] = value
    return found


@cache
def scenarios() -> dict[str, Scenario]:
    """Every registered scenario by name, with its mutants."""
    found: dict[str, Scenario] = {}
    for module in modules():
        for value in _held(module).values():
            found[value.name] = dataclasses.replace(
                value, mutants={**value.mutants, **_mutants().get(value.name, {})}
            )
    return dict(sorted(found.items()))


def _held(module: ModuleType) -> dict[str, Scenario]:
    """The scenarios of a module: its attributes that are one, and the items of those that are a dict of
    them (as `black_box(...)` makes). A second dict's items are called `attribute_key` where the key is
    taken."""
    found: dict[str, Scenario] = {}
    for attribute, value in vars(module).items():
        tested = getattr(value, "scenario", None)  # a @distributed_test
        if isinstance(value, Scenario):
            found[attribute] = value
        elif isinstance(tested, Scenario) and callable(value):
            found[attribute] = tested
        elif isinstance(value, dict) and not attribute.startswith("__"):
            for key, one in value.items():
                if isinstance(one, Scenario):
                    found[f"{attribute}_{key}" if key in found else key] = one
    return found


def doctors() -> dict[str, Doctor]:
    """What `rankfault doctor` may be asked for, by name."""
    return {one.name: one for one in _values() if isinstance(one, Doctor)}


def benches() -> dict[str, Bench]:
    """What systems offer to `rankfault bench`, by name."""
    return {one.name: one for one in _values() if isinstance(one, Bench)}


def _values() -> Iterator[object]:
    for module in modules():
        yield from vars(module).values()


def find(name: str) -> Scenario:
    """The scenario called `name`, or the one in a user's file.

    Raises UnknownName with the nearest choice, or UserFileError.
    """
    path, _, wanted = name.partition("::")
    if path.endswith(".py"):
        if wanted == MAIN:
            return script(path)
        return _pld_named(path, wanted) if wanted and _is_pld(path) else from_file(name)
    known = scenarios()
    if name not in known:
        raise UnknownName("scenario", name, known)
    return known[name]


def find_all(
    name: str, kind: str | None = None, argv: Sequence[str] = (), *, cuda: bool = False
) -> list[Scenario]:
    """What `name` may hunt: the scenario called so, or every scenario in a user's file or folder.

    kind: what the file is taken for (harness/frontends/kinds.py), by default what its imports say it is.
    argv: a script's arguments. cuda: whether it is told that CUDA is there.
    """
    path, mark, wanted = name.partition("::")
    if cuda and not (path.endswith(".py") and kind_of_file(path, kind) == "torch"):
        raise UsageError(f"{name}: --with-cuda is for torch.distributed scripts; this is none")
    if not wanted and Path(path).is_dir():
        return _in_folder(path, kind, argv)
    if path.endswith(".py"):
        path = from_here(path)
        name = f"{path}{mark}{wanted}"
        found = kind_of_file(path, kind)
        if found == "pld":
            return _pld(path, wanted, argv, asked=kind is not None)
        if found == "torch" and wanted in ("", MAIN):
            return [script(path, argv, cuda=cuda)]
        if argv:
            raise UsageError(f"{name}: only scripts take arguments; this is a {found} file")
        if not wanted:
            return list(_in_file(path).values())
    return [find(name)]


def kind_of_file(name: str, kind: str | None = None) -> Kind:
    """What the user's file `path.py` or `path.py::name` is taken for. Raises UsageError."""
    path = name.partition("::")[0]
    return kind_of(user_text(from_here(path))[0].decode("utf-8", "replace"), path, kind)


def _in_folder(folder: str, kind: str | None, argv: Sequence[str]) -> list[Scenario]:
    """The scenarios of every pld program and pld test file below a folder.

    A file that cannot be loaded is a scenario that cannot run here. argv: of the programs with a main.
    """
    from harness.frontends.pypto.scenarios import cannot_run, is_test_file

    folder = from_here(folder)
    if PurePosixPath(folder).is_absolute() or ".." in PurePosixPath(folder).parts:
        raise UserFileError(f"{folder}: it must lie below the working directory; cd {folder} first")
    found: list[Scenario] = []
    for file in sorted(Path(folder).rglob("*.py")):
        if file.name in ("conftest.py", "__init__.py"):
            continue
        path = str(PurePosixPath(file))
        try:
            if kind_of_file(path, kind) != "pld":
                continue
        except UserFileError as error:  # of no kind, or no Python
            if re.search(rb"^\s*(import|from) pypto\b", user_text(path)[0], re.MULTILINE):
                found.append(cannot_run(path, str(error)))
            continue
        try:
            found += _pld(path, "", () if is_test_file(path) else argv, asked=kind is not None)
        except UserFileError as error:
            found.append(cannot_run(path, str(error)))
    if not found:
        raise UsageError(f"{folder}: no pld program in it")
    return found


def script(path: str, argv: Sequence[str] = (), *, cuda: bool = False) -> Scenario:
    """The torch.distributed script `path` as a scenario, called `path::__main__`."""
    from harness.frontends.torch_distributed.script import script_scenario  # torch's parts are slow

    text, digest = user_text(path)
    made = script_scenario(path, text, tuple(argv), cuda=cuda)
    return dataclasses.replace(made, name=f"{PurePosixPath(path)}::{MAIN}", digest=digest)


def _is_pld(path: str) -> bool:
    try:
        return kind_of(user_text(path)[0].decode("utf-8", "replace"), path) == "pld"
    except UserFileError:
        return False  # whoever reads it says what is wrong with it


def _pld(path: str, wanted: str, argv: Sequence[str], *, asked: bool) -> list[Scenario]:
    """The scenarios of a pld program: the host calls of its main, or the one that is wanted.

    asked: by `--as pld`, without which a real pypto is not put out of sight. Raises UsageError.
    """
    from harness.frontends.pypto.modules import check_choice
    from harness.frontends.pypto.scenarios import scenarios_in, scenarios_named

    check_choice(asked=asked)
    text, _ = user_text(path)
    return scenarios_named(path, text, wanted, argv) if wanted else scenarios_in(path, text, argv)


def _pld_named(path: str, wanted: str) -> Scenario:
    """The scenario of a seed: its plan brings the main's arguments."""
    from harness.frontends.pypto.scenarios import scenario_named

    return scenario_named(path, user_text(path)[0], wanted)


def mutant_of(scenario: Scenario, name: str | None) -> Mutant | None:
    """The scenario's mutant called `name` (None: the twin)."""
    if name is None:
        return None
    if name not in scenario.mutants:
        raise UnknownName(f"mutant of {scenario.name}", name, scenario.mutants)
    return scenario.mutants[name]


_loaded: dict[tuple[str, str], dict[str, Scenario]] = {}


def from_file(name: str) -> Scenario:
    """The scenario `path.py::name` (or the only one in `path.py`)."""
    path, _, wanted = name.partition("::")
    found = _in_file(path)
    if wanted:
        if wanted not in found:
            raise UnknownName(f"scenario in {path}", wanted, found)
        return found[wanted]
    if len(found) > 1:
        raise UserFileError(f"{path}: holds {', '.join(found)}; name one as {path}::NAME")
    return next(iter(found.values()))


def from_here(path: str) -> str:
    """A path as it was typed, relative to the working directory if it lies below it."""
    pure = PurePosixPath(path)
    if not pure.is_absolute() and ".." not in pure.parts:
        return path
    if not os.path.exists(path):
        raise UserFileError(f"{path}: No such file or directory")
    below = os.path.relpath(path)
    return path if below.startswith("..") else below


def user_text(path: str) -> tuple[bytes, str]:
    """The text of a user's file and its digest. Raises UserFileError."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise UserFileError(
            f"{path}: a scenario's file must lie below the working directory, so that its seeds replay "
            f"elsewhere; cd {pure.parent} first"
        )
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UserFileError(f"{path}: {error.strerror or error}") from None
    return text, hashlib.sha256(text).hexdigest()[:16]


def _in_file(path: str) -> dict[str, Scenario]:
    """The scenarios of a user's file, at least one, by attribute. Raises UserFileError."""
    text, digest = user_text(path)
    pure = str(PurePosixPath(path))
    key = (pure, digest)
    if key not in _loaded:
        _loaded[key] = _import(pure, Path(path), text, digest)
    found = _loaded[key]
    if not found:
        raise UserFileError(f"{path}: no scenario in it; decorate a rank program with @scenario")
    return found


def _import(path: str, file: Path, text: bytes, digest: str) -> dict[str, Scenario]:
    """The scenarios in `text`. Not through the import system: its cache misses quick edits."""
    # Each version of a file is a module of its own: a mutant is planted into its twin's module.
    module_name = f"rankfault_user_{hashlib.sha256(path.encode()).hexdigest()[:12]}_{digest}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    assert spec.origin is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        exec(compile(text, spec.origin, "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        sys.modules.pop(module_name, None)
        if isinstance(error, SyntaxError) and error.filename == spec.origin:
            raise UserFileError(f"{path}:{error.lineno}: {error.msg}") from None
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == spec.origin]
        line = f":{frames[-1].lineno}" if frames else ""
        told = " ".join(str(error).split())
        raise UserFileError(f"{path}{line}: {type(error).__name__}: {told}") from None
    return {
        attribute: dataclasses.replace(value, name=f"{path}::{attribute}", digest=digest)
        for attribute, value in _held(module).items()
    }
