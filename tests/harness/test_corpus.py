"""Seed files: strict reading, whole writing, tokens, and what open and fixed promise."""

from __future__ import annotations

import errno
import json
import os
import zlib
from base64 import urlsafe_b64encode
from pathlib import Path

import msgspec
import pytest

from harness import Hold, Outcome, Plan, registry, run
from harness.corpus import (
    Seed,
    decode,
    encode_file,
    files,
    plan_of,
    plan_of_token,
    read,
    replay,
    seed_of,
    token_of,
    write,
    write_whole,
)
from harness.errors import PlanError, SeedFileError, UnknownName, UserFileError

RING = """\
import torch
from harness import scenario, values

def reference(size):
    return [values((rank - 1) % size, 2) for rank in range(size)]

@scenario(reference=reference)
def ring(rank):
    inbox = rank.window("inbox", 2, torch.float32)
    flag = rank.window("flag", 1, torch.int32)
    right = (rank.index + 1) % rank.size
    rank.put(inbox, right, values(rank.index, 2))
    ORDER
    rank.notify(flag, right, 0, 1)
    rank.wait(flag, 0, 1)
    return rank.load(inbox, 0, 2)
"""
BROKEN = RING.replace("ORDER", "pass")
CURED = RING.replace("ORDER", "rank.fence()")
LATE = (Hold(0, 0),)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.py").write_text(BROKEN)
    return tmp_path


def failing(schedule=LATE) -> tuple[Outcome, Seed]:
    scenario = registry.find("ring.py")
    plan = Plan(scenario="ring.py::ring", params=scenario.params(), ranks=2, schedule=schedule)
    outcome = run(plan)
    return outcome, seed_of("ring", outcome, outcome.findings[0], scenario, root_seed=7)


def test_a_seed_file_reads_back_as_it_was_written(here):
    _, seed = failing()
    path = here / "seeds" / "ring.json"
    write(path, seed)
    assert read(path) == seed
    assert files(here / "seeds") == [path]
    assert [entry.name for entry in path.parent.iterdir()] == ["ring.json"]
    # Readable: one field a line, the format number first.
    assert path.read_text().splitlines()[1] == '  "rankfault": 1,'


def edited(seed: Seed, change) -> bytes:
    data = json.loads(encode_file(seed))
    change(data)
    return json.dumps(data, indent=2).encode()


def line_with(data: bytes, text: str) -> int:
    return next(i for i, line in enumerate(data.decode().splitlines(), 1) if text in line)


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (lambda d: d["plan"].update(ranks="two"), '"ranks"', "$.plan.ranks: Expected `int`"),
        (
            lambda d: d["plan"].update(colour=1),
            '"colour"',
            "$.plan.colour: Object contains unknown",
        ),
        (lambda d: d.update(status="shut"), '"status"', "$.status: Invalid enum value 'shut'"),
        (lambda d: d.update(name="../x"), '"name"', "$.name: Expected `str` matching"),
        (
            lambda d: d["plan"]["schedule"][0].update(op=-1),
            '"op"',
            "$.plan.schedule[0].op: Expected",
        ),
        (lambda d: d["origin"].pop("torch"), '"origin"', "$.origin: Object missing required field"),
        (lambda d: d.update(rankfault=2), '"rankfault"', "format 2 is newer"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(here, change, field, said):
    _, seed = failing()
    data = edited(seed, change)
    with pytest.raises(SeedFileError) as caught:
        decode(data, "seeds/ring.json")
    text = str(caught.value)
    assert text.startswith(f"seeds/ring.json:{line_with(data, field)}: ")
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (
            lambda d: d["plan"]["params"].update(n=1),
            '"n"',
            "$.plan.params.n: Object contains unknown",
        ),
        (lambda d: d["plan"].update(bug="nope"), '"bug"', "$.plan.bug: no mutant of ring.py::ring"),
        (lambda d: d["plan"].update(ranks=9), '"ranks"', "$.plan.ranks: 9 is outside 2..8"),
        (
            lambda d: d["plan"].update(faults=[{"fault": "crsh"}]),
            '"fault":',
            "no fault is called 'crsh'; did you mean 'crash'?",
        ),
        (
            lambda d: d["plan"].update(faults=[{"fault": "crash", "rank": "x"}]),
            '"rank"',
            "$.plan.faults[0].rank",
        ),
        (
            lambda d: d["plan"].update(scenario="collectives.barier"),
            '"scenario"',
            "did you mean 'collectives.barrier'?",
        ),
        (
            lambda d: d["plan"].update(scenario="gone.py::ring"),
            '"scenario"',
            "gone.py: No such file",
        ),
    ],
)
def test_a_plan_that_fits_no_scenario_is_named_with_its_line(here, change, field, said):
    _, seed = failing()
    data = edited(seed, change)
    with pytest.raises(SeedFileError) as caught:
        plan_of(decode(data, "s.json"), "s.json", data)
    assert str(caught.value).startswith(f"s.json:{line_with(data, field)}: ")
    assert said in str(caught.value)


def test_a_file_cut_off_anywhere_is_an_error_with_its_line(here):
    _, seed = failing()
    whole = encode_file(seed).rstrip()
    for length in range(len(whole)):
        with pytest.raises(SeedFileError, match=r"^s\.json:\d+"):
            decode(whole[:length], "s.json")
    with pytest.raises(SeedFileError, match=r"^s\.json:\d+:\d+: cut off"):
        decode(whole[: len(whole) // 2], "s.json")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[1, 2]", "s.json:1: not a seed file"),
        (b'{"name": 1}', "no field `rankfault`"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"rankfault": 1,}', "s.json:1:17: not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_seed_file_is_refused_in_one_line(data, said):
    with pytest.raises(SeedFileError) as caught:
        decode(data, "s.json")
    assert said in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(SeedFileError, match="No such file"):
        read(tmp_path / "none.json")
    with pytest.raises(SeedFileError, match="directory"):
        read(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "ring.json"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(SeedFileError, match=r"ring\.json: cannot be written: No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["ring.json"]


def test_a_seeds_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "seeds").write_text("")
    with pytest.raises(SeedFileError, match="cannot be written"):
        write_whole(tmp_path / "seeds" / "ring.json", b"new")
    with pytest.raises(SeedFileError, match="Not a directory"):
        files(tmp_path / "seeds")


def test_a_token_holds_the_whole_plan(here):
    outcome, _ = failing()
    token = token_of(outcome.plan)
    plan, scenario = plan_of_token(token)
    assert plan == outcome.plan
    assert scenario.name == "ring.py::ring"
    for length in range(4, len(token)):
        with pytest.raises(SeedFileError, match="cut off or damaged"):
            plan_of_token(token[:length])


def packed(text: bytes) -> str:
    return "rf1:" + urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "error", "said"),
    [
        ("rf2:abcd", SeedFileError, "begin with rf1:"),
        (packed(b"{}"), PlanError, "token: Object missing required field"),
        (packed(b"nonsense"), PlanError, "token: JSON is malformed"),
        (packed(b"0" * (1 << 21)), SeedFileError, "damaged"),
        ("rf1:%%%%", SeedFileError, "damaged"),
    ],
)
def test_a_wrong_token_is_refused(token, error, said):
    with pytest.raises(error, match=said):
        plan_of_token(token)


def test_a_token_of_an_unknown_scenario_is_refused(here):
    outcome, _ = failing()
    other = token_of(msgspec.structs.replace(outcome.plan, scenario="nope"))
    with pytest.raises(UnknownName):
        plan_of_token(other)
    (here / "ring.py").unlink()
    with pytest.raises(UserFileError):
        plan_of_token(token_of(outcome.plan))


def test_an_open_seed_whose_plan_takes_no_effect_is_not_called_cured(here):
    _, seed = failing()
    idle = msgspec.structs.replace(seed.plan, schedule=(Hold(999),))
    result = replay(msgspec.structs.replace(seed, plan=idle), "s.json")
    assert (result.reproduced, result.stale) == (False, True)
    assert "1 of 1 deviations took no effect" in result.problem
    assert "cured" not in result.problem


def test_an_open_seed_must_reproduce(here):
    _, seed = failing()
    again = replay(seed, "s.json")
    assert again.reproduced
    assert again.problem == ""
    assert again.warnings == ()
    (here / "ring.py").write_text(CURED)
    cured = replay(seed, "s.json")
    assert not cured.reproduced
    assert cured.finding is None
    assert "cured? run `rankfault seeds fix ring`" in cured.problem
    assert "has changed since this seed was written" in cured.warnings[0]


def test_a_fixed_seed_must_be_clean(here):
    _, seed = failing()
    fixed = msgspec.structs.replace(seed, status="fixed")
    back = replay(fixed, "s.json")
    assert back.reproduced
    assert "is back" in back.problem
    (here / "ring.py").write_text(CURED)
    assert replay(fixed, "s.json").problem == ""


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({"schedule": (Hold(0, 0), Hold(99, 0))}, "1 of 2 deviations took no effect"),
        ({"faults": ({"fault": "dropped_notify", "rank": 1, "nth": 9},)}, "never fired"),
    ],
)
def test_a_fixed_seed_whose_plan_takes_no_effect_is_stale(here, plan, said):
    _, seed = failing()
    (here / "ring.py").write_text(CURED)
    seed = msgspec.structs.replace(
        seed, status="fixed", plan=msgspec.structs.replace(seed.plan, **plan)
    )
    stale = replay(seed, "s.json")
    assert stale.stale
    assert said in stale.problem


def test_another_finding_than_the_expected_one_is_said(here):
    _, seed = failing()
    other = msgspec.structs.replace(seed.finding, identity="deadlock/cycle@x:y#0")
    again = replay(msgspec.structs.replace(seed, finding=other), "s.json")
    assert not again.reproduced
    assert again.finding is not None
    assert again.problem == f"shows {seed.finding.identity} instead of deadlock/cycle@x:y#0"


def test_the_file_is_found_again_by_path_only(here):
    """No path of this machine in a seed: the same file elsewhere replays."""
    _, seed = failing()
    assert str(Path.cwd()) not in encode_file(seed).decode()
