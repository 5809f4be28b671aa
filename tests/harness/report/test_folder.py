"""The folder of a finding: whole or not there, and everything in it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from harness import Plan, registry, run
from harness.corpus import read, replay
from harness.errors import UsageError
from harness.report.folder import leave, name_of, rank_log

SCENARIO = registry.find("collectives.put_get")


@pytest.fixture(scope="module")
def outcome():
    return run(
        Plan(scenario=SCENARIO.name, params=SCENARIO.params(), ranks=2, bug="put_without_notify"),
        scenario=SCENARIO,
    )


def left(parent: Path, outcome) -> Path:
    path, _ = leave(
        parent, outcome, outcome.findings[0], SCENARIO, None, root_seed=7, explorer="default"
    )
    return path


def test_everything_is_in_it_and_its_seed_replays(tmp_path, outcome):
    path = left(tmp_path / "found", outcome)
    assert sorted(entry.name for entry in path.iterdir()) == [
        "rank-0.log",
        "rank-1.log",
        "replay.txt",
        "report.txt",
        "seed.json",
        "stacks.txt",
        "timeline.svg",
        "timeline.txt",
        "versions.json",
    ]
    seed = read(path / "seed.json")
    assert (seed.origin.root_seed, seed.origin.explorer) == (7, "default")
    assert replay(seed, "s").reproduced
    command = (path / "replay.txt").read_text()
    assert (path / "report.txt").read_text().endswith(command)
    assert command == f"rankfault replay {path.as_posix()}/seed.json\n"
    assert "torch" in json.loads((path / "versions.json").read_text())
    assert "rank 0 is blocked in wait at" in (path / "stacks.txt").read_text()


def test_the_logs_hold_every_event_once(outcome):
    lines = [line for rank in (0, 1) for line in rank_log(outcome.run, rank).splitlines()]
    assert sorted(int(line.split()[0]) for line in lines) == list(range(len(outcome.run.raw)))
    assert all(".py:" in line for line in lines)


def test_the_same_finding_again_replaces_its_folder(tmp_path, outcome):
    first = left(tmp_path, outcome)
    (first / "note.txt").write_text("mine")
    assert left(tmp_path, outcome) == first
    assert not (first / "note.txt").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == [first.name]
    assert first.name == name_of(outcome, outcome.findings[0])


@pytest.mark.parametrize("step", ["rename", "chmod"])
def test_a_full_disk_leaves_nothing(tmp_path, outcome, monkeypatch, step):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        left(tmp_path, outcome)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_refused(tmp_path, outcome):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        left(tmp_path / "file", outcome)
