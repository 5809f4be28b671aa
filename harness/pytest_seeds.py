"""Seed files as pytest items: the corpus runs first, and `--rankfault-replay` runs one plan alone.

An open seed must reproduce its finding, a fixed one must be clean with every fault and deviation
taking effect (corpus.py says so). The corpus is added when pytest is called without paths; called
with paths, a seed file under one of them is a test like others.

`--rankfault-replay` is for looking at a bug: the item fails with the report as long as the plan
shows any finding, whatever the seed's status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

REPLAY = "rankfault-replay"


class SeedProblem(Exception):
    """A seed that does not do what its status promises; the text is what to print."""


class SeedCollection:
    """The plugin of a session that has seeds to run."""

    def __init__(self, config: pytest.Config) -> None:
        self._replay: str | None = config.getoption("rankfault_replay")
        self._files = _listed(config)
        if self._replay is not None:
            config.args = []
        elif config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = [*(str(path) for path in self._files), *config.args]

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """A seed file of the corpus."""
        if file_path in self._files:
            return SeedFile.from_parent(parent, path=file_path)
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Seeds first; a replay alone."""
        if self._replay is not None:
            items[:] = [ReplayItem.from_parent(session, name=REPLAY, what=self._replay)]
        else:
            items.sort(key=lambda item: not isinstance(item, SeedItem))


def _listed(config: pytest.Config) -> list[Path]:
    """The seed files that the ini key names, in name order; a folder stands for those in it."""
    found: set[Path] = set()
    for entry in config.getini("rankfault_seeds"):
        if not entry.strip():
            continue
        if Path(entry).is_absolute() or ".." in Path(entry).parts:
            raise pytest.UsageError(
                f"rankfault_seeds: {entry}: a path relative to the root folder, without '..'"
            )
        for path in _matches(config.rootpath, entry):
            found.update(path.glob("*.json") if path.is_dir() else [path])
    return sorted(found)


def _matches(root: Path, entry: str) -> Iterable[Path]:
    """The paths that an entry names. One without wildcards that is not there is an empty corpus."""
    if any(letter in entry for letter in "*?["):
        return sorted(root.glob(entry))
    path = root / entry
    if path.suffix and not path.exists():
        raise pytest.UsageError(f"rankfault_seeds: {entry}: no such seed file")
    return [path] if path.exists() else []


class SeedFile(pytest.File):
    """One seed file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Its one item."""
        yield SeedItem.from_parent(self, name=self.path.stem)


class SeedItem(pytest.Item):
    """A seed, held against its status."""

    def runtest(self) -> None:
        """Replay the seed. Raises SeedProblem."""
        from harness import corpus
        from harness.errors import NotHere

        where = _relative(self.path, self.config)
        seed = corpus.read(self.path)
        try:
            replayed = corpus.replay(seed, where)
        except NotHere as error:
            pytest.skip(str(error))
        for warning in replayed.warnings:
            self.add_report_section("call", "rankfault", warning)
        if replayed.problem:
            raise SeedProblem(_problem(replayed, where))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The problem or the usage error without a traceback through this package."""
        return _text_of(excinfo) or super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the seed stands."""
        return self.path, 0, f"seed {self.name}"


class ReplayItem(pytest.Item):
    """One plan, replayed alone."""

    def __init__(self, *, what: str, **rest: Any) -> None:
        super().__init__(**rest)
        self._what = what

    def runtest(self) -> None:
        """Run the plan; fail with the report of its first finding."""
        from harness import corpus
        from harness.report.text import report
        from harness.run import run

        if corpus.is_token(self._what):
            plan, scenario = corpus.plan_of_token(self._what)
        else:
            path = self.config.invocation_params.dir / self._what
            plan, scenario, _ = corpus.plan_of(corpus.read(path), self._what)
        outcome = run(plan, scenario=scenario, races=True)
        if outcome.findings:
            file = None if corpus.is_token(self._what) else self._what
            raise SeedProblem(report(outcome, outcome.findings[0], scenario, replay=file))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report alone."""
        return _text_of(excinfo) or super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """What is replayed."""
        return self.path, 0, f"replay {self._what}"


def _relative(path: Path, config: pytest.Config) -> str:
    root = config.rootpath
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def _problem(replayed: Any, where: str) -> str:
    """The problem of a seed, with the report of what it shows instead."""
    from harness.report.text import report

    text = f"{where}: {replayed.problem}"
    if replayed.finding is None:
        return text
    shown = report(replayed.outcome, replayed.finding, replayed.scenario, replay=where)
    return f"{text}\n\n{shown}"


def _text_of(excinfo: pytest.ExceptionInfo[BaseException]) -> str | None:
    from harness.errors import UsageError

    if isinstance(excinfo.value, SeedProblem | UsageError):
        return str(excinfo.value)
    return None
