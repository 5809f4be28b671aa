"""The command line, in process: exit codes, one-line errors, JSON, seeds, lists, help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import Fault, registry
from harness.corpus import read

MUTANT = ["hunt", "collectives.put_get", "--bug", "put_without_notify", "--root-seed", "5"]
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


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("RANKFAULT_ROOT_SEED", "RANKFAULT_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hunt", "collectives.barier"], "did you mean 'collectives.barrier'?"),
        (["hunt", "--bug", "mising_barrier"], "no mutant is called"),
        (["hunt", "collectives.barrier", "--bug", "missing_barrier"], "choose one of: "),
        (["hunt", "--fault", "crsh"], "did you mean 'crash'?"),
        (["hunt", "collectives.barrier", "--ranks", "2..9"], "collectives.barrier runs with 1..8"),
        (["hunt", "--ranks", "9"], "runs with 1..8"),
        (["hunt", "--ranks", "4..2"], "the smaller first"),
        (["hunt", "--ranks", "many"], "such as 4 or 2..8"),
        (["hunt", "none.py"], "none.py: No such file"),
        (["hunt", "/none.py"], "/none.py: No such file or directory"),
        (["hunt", "../none.py"], "../none.py: No such file or directory"),
        (["hunt", "--until", "deadlok"], "did you mean 'deadlock'?"),
        (["hunt", "--until", "deadlock@3"], "such as deadlock@rank=3"),
        (["hunt", "--until", "deadlock@rank=8"], "the ranks are 0..7"),
        (["hunt", "--minutes", "1", "--plans", "1"], "give one of them"),
        (["hunt", "--minutes", "0"], "give more than 0"),
        (["hunt", "--plans", "0"], "--plans"),
        (["hunt", "--root-seed", "-1"], "--root-seed"),
        (["hunt", "--delivery", "slow"], "choose one of: eager, relaxed"),
        (["hunt", "--torn", "5"], "--torn 5: choose one of: 0, 4, 8, 64"),
        (["hunt", "--nope"], "--nope"),
        (["nope"], "'nope'"),
        (["replay"], "Missing argument"),
        (["replay", "none.json"], "none.json: No such file"),
        (["replay", "none"], "no seed of that name in seeds/"),
        (["replay", "rf1:abc"], "cut off or damaged"),
        (["replay", "rf9:abc"], "begin with rf1:"),
        (["explain", "none.json"], "none.json: No such file"),
        (["seeds", "show", "none"], "no seed is called 'none' in seeds/; there are none"),
        (["seeds", "fix", "none"], "no seed is called"),
        (["seeds", "keep", "none.json"], "none.json: No such file"),
        (["list", "fault"], "did you mean 'faults'?"),
        (["bench", "none"], "no figure is called 'none'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(cli, tmp_path, words, said):
    code, out, err = cli(*words)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import harness, nothing_here_1\n", "user.py:1: ModuleNotFoundError"),
        ("import harness\nraise RuntimeError('boom')\n", "user.py:2: RuntimeError: boom"),
        ("def f(:\n", "user.py:1: invalid syntax"),
        ("import harness\nraise SystemExit(0)\n", "user.py:2: SystemExit: 0"),
        ("import harness\nx = 2\n", "no scenario in it"),
        ("x = 2\n", "user.py: imports none of harness, torch.distributed and pypto"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(cli, text, said):
    Path("user.py").write_text(text)
    code, _, err = cli("hunt", "user.py")
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


def test_a_file_with_several_scenarios_is_hunted_whole(cli):
    Path("user.py").write_text(RING.replace("ORDER", "rank.fence()") + "\nother = ring\n")
    code, out, _ = cli("hunt", "user.py", "user.py::ring", "--plans", "3", "--root-seed", "1")
    assert code == 0
    assert [out.count(f"user.py::{name} ") for name in ("ring", "other")] == [2, 1]  # next: names it too


def test_a_program_that_does_not_repeat_is_a_finding_with_a_note(cli):
    counting = "rank.fence()\n    rank.buffer(1, torch.int32)\n    BEFORE.append(1)"
    counting += "\n    if len(BEFORE) % 5 == 0:\n        rank.sync()"
    Path("user.py").write_text("BEFORE = []\n" + RING.replace("ORDER", counting))
    code, out, err = cli("hunt", "user.py", "--plans", "60", "--root-seed", "1")
    assert (code, err) == (1, "")
    assert "not repeatable" in out
    assert "proven" not in out


def test_replays_that_differ_prove_nothing(cli):
    counting = "rank.fence()\n    BEFORE.append(1)\n    if len(BEFORE) % 5 == 0:\n        rank.sync()"
    Path("user.py").write_text("BEFORE = []\n" + RING.replace("ORDER", counting))
    cli("hunt", "user.py", "--plans", "60", "--root-seed", "1", "--out", "found")
    (folder,) = Path("found").iterdir()
    code, _, err = cli("replay", str(folder), "--times", "30")
    assert code == 4
    assert "outside the plan" in err
    assert "report it" not in err


def test_an_error_that_is_no_exception_is_one_line(cli):
    raising = "import asyncio\n    raise asyncio.CancelledError('x')"
    Path("user.py").write_text(RING.replace("ORDER", raising))
    code, _, err = cli("hunt", "user.py", "--plans", "3")
    assert (code, err.count("\n")) == (2, 1)
    assert "CancelledError" in err


def test_a_finding_ends_with_1_and_leaves_what_replays_it(cli):
    code, out, err = cli(*MUTANT)
    assert code == 1
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "root seed 5"
    command = lines[-1].removeprefix("next: ")
    assert command.startswith("rankfault replay rankfault-findings/collectives.put_get-")
    assert f"\n{command}\n" in out  # the report's last line
    replayed, said, _ = cli(*command.split()[1:], "--times", "3")
    assert replayed == 1
    assert said.startswith("reproduced 3 of 3 times: deadlock/")
    seed = read(Path(command.split()[-1]))
    assert seed.origin.root_seed == 5
    assert seed.plan.bug == "put_without_notify"


def test_the_same_root_seed_prints_the_same(cli):
    first, second = (cli(*MUTANT)[1].split("\nhunted")[0] for _ in range(2))
    assert first == second


def test_correct_systems_end_with_0(cli):
    code, out, err = cli("hunt", "--plans", "3", "--root-seed", "1")
    assert code == 0
    missing = [f"left out: {name} cannot run here: {one.missing}" for name, one in
               registry.scenarios().items() if one.subject is None and one.missing]
    assert err.splitlines() == missing
    for name, one in registry.scenarios().items():
        assert (f"{name} " in out) == (one.subject is None and not one.missing)
    assert out.splitlines()[-1].startswith("next: rankfault hunt ")
    assert not Path("rankfault-findings").exists()


class Idle(Fault, frozen=True, tag="idle"):
    """Hits every notify and changes nothing."""

    def matches(self, op):
        return op.kind == "notify"

    def rewrite(self, op):
        return op


def test_a_fault_that_never_fires_ends_with_4(cli, monkeypatch):
    known = {**registry.faults(), "idle": Idle}
    monkeypatch.setattr(registry, "faults", lambda: known)
    code, out, _ = cli("hunt", "collectives.barrier", "--fault", "idle", "--plans", "9")
    assert code == 4
    assert "UNKNOWN collectives.barrier --fault idle: idle never fired in 9 plans" in " ".join(
        out.split()
    )


def test_json_is_one_object_and_nothing_else_on_stdout(cli):
    code, out, err = cli(*MUTANT, "--json")
    data = json.loads(out)
    assert (code, data["exit_code"], data["root_seed"]) == (1, 1, 5)
    (hunted,) = data["hunts"]
    assert hunted["verdict"] == "FAIL"
    assert hunted["finding"]["name"].startswith("deadlock/")
    assert err.startswith("root seed 5\n")
    assert hunted["finding"]["report"] in err
    code, out, _ = cli("replay", hunted["finding"]["token"], "--json")
    again = json.loads(out)
    assert (code, again["reproduced"], again["finding"]["identity"]) == (
        1,
        True,
        hunted["finding"]["identity"],
    )


def test_the_root_seed_comes_from_the_environment_too(cli, monkeypatch):
    monkeypatch.setenv("RANKFAULT_ROOT_SEED", "77")
    assert cli("hunt", "collectives.hello_rank", "--plans", "1")[1].startswith("root seed 77\n")


def test_until_passes_over_other_findings(cli):
    code, out, _ = cli(*MUTANT, "--until", "integrity", "--plans", "5")
    assert code == 4
    assert "passed over, not what --until waits for: deadlock/" in " ".join(out.split())
    assert cli(*MUTANT, "--until", "deadlock@rank=0")[0] == 1


def test_a_mutant_alone_finds_its_scenario(cli):
    _, out, _ = cli("hunt", "--bug", "missing_second_barrier", "--plans", "1", "--root-seed", "1")
    assert "collectives.allreduce_mesh" in out


def test_a_folder_that_cannot_be_written_loses_nothing(cli):
    Path("file").write_text("")
    code, out, err = cli(*MUTANT, "--out", "file/x")
    assert code == 1
    assert err.count("\n") == 1
    assert "cannot be written" in err
    command = next(line for line in out.splitlines() if line.startswith("rankfault replay rf1:"))
    assert out.splitlines()[-1] == f"next: {command}"
    assert cli(*command.split()[1:])[0] == 1


def test_a_seed_lives_from_finding_to_fixed(cli):
    Path("ring.py").write_text(RING.replace("ORDER", "pass"))
    code, out, _ = cli("hunt", "ring.py", "--root-seed", "7")
    assert code == 1
    found = out.splitlines()[-1].split()[-1]
    code, out, _ = cli("seeds", "keep", found, "overtaken")
    assert (code, "seeds/overtaken.json: kept" in out) == (0, True)
    assert cli("seeds", "keep", found, "overtaken")[0] == 2  # it is there already
    assert cli("seeds", "keep", found, "../up")[0] == 2
    assert "open: integrity/" in cli("seeds", "list")[1]
    assert json.loads(cli("seeds", "list", "--json")[1])[0]["name"] == "overtaken"
    assert cli("seeds", "show", "overtaken")[1] == Path("seeds/overtaken.json").read_text()
    assert cli("replay", "overtaken")[0] == 1
    code, out, _ = cli("seeds", "fix", "overtaken")
    assert (code, "still shows integrity/" in out) == (1, True)
    assert read(Path("seeds/overtaken.json")).status == "open"

    Path("ring.py").write_text(RING.replace("ORDER", "rank.fence()"))
    code, out, err = cli("replay", "overtaken")
    assert code == 0
    assert "cured? run `rankfault seeds fix overtaken`" in out
    assert err.startswith("warning: seeds/overtaken.json: ring.py::ring has changed")
    assert cli("seeds", "fix", "overtaken")[0] == 0
    assert read(Path("seeds/overtaken.json")).status == "fixed"
    code, out, err = cli("replay", "overtaken")
    assert (code, err) == (0, "")

    Path("ring.py").write_text(RING.replace("ORDER", "pass"))
    code, out, _ = cli("replay", "overtaken")
    assert code == 1
    assert "is back" in out


def test_a_mutants_seed_cannot_be_fixed(cli):
    cli(*MUTANT)
    (found,) = Path("rankfault-findings").glob("*/seed.json")
    cli("seeds", "keep", str(found), "planted")
    code, _, err = cli("seeds", "fix", "planted")
    assert (code, "stays open" in err) == (2, True)


def test_a_seeds_folder_that_is_a_file_is_refused(cli):
    cli(*MUTANT)
    (found,) = Path("rankfault-findings").glob("*/seed.json")
    Path("seeds").write_text("mine")
    code, _, err = cli("seeds", "keep", str(found), "x")
    assert (code, err.count("\n")) == (2, 1)
    assert "seeds/x.json: cannot be written" in err
    assert Path("seeds").read_text() == "mine"


def test_a_broken_seed_does_not_hide_the_others(cli):
    cli(*MUTANT)
    (found,) = Path("rankfault-findings").glob("*/seed.json")
    cli("seeds", "keep", str(found), "good")
    Path("seeds/bad.json").write_text('{"rankfault": 1,')
    code, out, err = cli("seeds", "list")
    assert code == 2
    assert out.startswith("good")
    assert err.startswith("rankfault: seeds/bad.json:1:")


def test_explain_shows_every_event(cli):
    cli(*MUTANT)
    (found,) = Path("rankfault-findings").glob("*/seed.json")
    code, out, _ = cli("explain", str(found))
    assert code == 1
    assert "..." not in out.split("Timeline")[1].split("Likely cause")[0]
    assert out.splitlines()[-1] == f"rankfault replay {found}"


@pytest.mark.parametrize("what", ["scenarios", "mutants", "faults", "checkers"])
def test_lists_name_everything(cli, what):
    code, out, _ = cli("list", what)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    rows = json.loads(cli("list", what, "--json")[1])
    assert rows
    assert all(row["name"] in out and row["text"] for row in rows)


@pytest.mark.parametrize(
    "words",
    [
        ["hunt"],
        ["replay"],
        ["explain"],
        ["list"],
        ["matrix"],
        ["bench"],
        ["doctor"],
        ["seeds"],
        ["seeds", "list"],
        ["seeds", "show"],
        ["seeds", "keep"],
        ["seeds", "fix"],
    ],
)
def test_every_command_explains_itself(cli, words):
    code, out, _ = cli(*words, "--help")
    assert code == 0
    assert f"rankfault {' '.join(words)}" in out
    assert max(map(len, out.splitlines())) <= 80


def test_no_command_prints_the_help_and_the_version_is_there(cli):
    assert cli()[1] == cli("--help")[1]
    assert cli("--version")[1].startswith("rankfault ")


def test_bench_outside_the_repository_says_so(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("harness.cli.bench.ROOT", tmp_path)
    code, _, err = cli("bench")
    assert (code, err.count("\n")) == (2, 1)
    assert "bench needs the repository" in err


def test_an_internal_error_is_one_line_and_its_traceback_is_kept(cli, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("harness.cli.listing.run_list", broken)
    code, _, err = cli("list", "faults")
    assert code == 3
    assert err == (
        "internal error: KeyError: 'lost'; please report it; the traceback is in "
        ".rankfault/error.txt\n"
    )
    assert "in broken" in Path(".rankfault/error.txt").read_text()
    code, _, err = cli("list", "faults", "--traceback")
    assert (code, err.splitlines()[0]) == (3, "Traceback (most recent call last):")


def test_a_narrow_terminal_gets_narrow_lines(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out, _ = cli(*MUTANT)
    body = out.split("Property")[1].split("rankfault replay")[0]
    assert max(map(len, body.splitlines())) <= 50


ODD = """\
import itertools
from harness import Finding, Scenario

class Odd:
    name = "odd"
    count = itertools.count()

    def check(self, run):
        if next(self.count) % 3 == 0:
            yield Finding(checker="odd", kind="odd", rank=0, message="odd")

def host(world, params):
    world.dispatch(lambda rank: 0, device=0)

odd = Scenario(name="odd", host=host, ranks=(1, 1), checkers=(Odd(),))
"""


def test_a_replay_says_in_how_many_runs_a_finding_shows(cli):
    Path("odd.py").write_text(ODD)
    code, said, _ = cli("hunt", "odd.py", "--plans", "1")
    assert code == 1
    assert "(2 of 6 runs did)" in said
    replay = said.strip().splitlines()[-1].removeprefix("next: rankfault ").split()
    Path("odd.py").write_text(ODD + "\n# as it was\n")  # counts from 0 again
    code, said, _ = cli(*replay, "--times", "7")
    assert code == 1
    assert said.startswith("reproduced 3 of 7 times: odd/odd")
    assert "may behave differently from run to run" in said
