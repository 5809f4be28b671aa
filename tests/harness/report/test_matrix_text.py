"""The matrix as text: what is wrong first, numbers as they are, any width, nothing unprintable."""

import msgspec
import pytest

from harness.matrix import Row
from harness.report.matrix_text import command, plain, render, replay, summary
from harness.trial import Shrunk

SHRUNK = Shrunk(
    finding="deadlock/cycle", from_ranks=4, ranks=2, deviations=1, proven=True, why="all tried",
    token="rf1:abc",
)
CAUGHT = Row(
    kind="mutant", scenario="s.one", name="no_barrier", status="caught", declared=("deadlock/cycle",),
    declared_ranks=2, root_seeds=(0, 1, 2), plans_max=100, found={"deadlock/cycle": 3},
    plans=(1, 2, 4), median=2, percentile95=4, smallest_ranks=2, shrunk=SHRUNK, plans_run=9,
)
FAULT = msgspec.structs.replace(
    CAUGHT, kind="fault", name="a_fault_with_a_name_that_is_long", declared_ranks=None,
    found={"deadlock/cycle": 2, "integrity/wrong_value": 1},
    shrunk=msgspec.structs.replace(SHRUNK, proven=False),
)
SURVIVOR = msgspec.structs.replace(
    CAUGHT, name="as_good", status="survived", reason="missed by 1 of 3 root seeds (2)",
    found={"deadlock/cycle": 2}, plans=(1, 1, 101), median=1, percentile95=101, missed=(2,),
    shrunk=None, smallest_ranks=None,
)
ALARM = Row(
    kind="twin", scenario="s.two", name="", status="false_alarm", reason="races/x, root seed 0",
    root_seeds=(0,), plans_max=100, found={"races/x": 1}, plans_run=5, shrunk=SHRUNK,
)
MISDECLARED = msgspec.structs.replace(
    CAUGHT, name="other", status="misdeclared", reason="deadlock/cycle: not declared"
)
EQUIVALENT = Row(
    kind="equivalent", scenario="s.two", name="dropped_fence", status="equivalent",
    declared=("equivalent: quiet waits",), plans_run=300, fired={"dropped_fence": 299},
)
UNKNOWN = msgspec.structs.replace(EQUIVALENT, status="unknown", reason="verifies nothing")
CLEAN = Row(
    kind="twin", scenario="s.one", name="", status="clean", plans_run=1200, distinct_runs=1100,
    fired={"crash": 1000, "late_put": 5},
)
NOT_RUN = Row(kind="mutant", scenario="s.z", name="m", status="not_run", reason="stopped with Ctrl-C")
ROWS = [CLEAN, CAUGHT, FAULT, EQUIVALENT, UNKNOWN, MISDECLARED, ALARM, SURVIVOR, NOT_RUN]


def test_what_is_wrong_comes_first_with_a_command():
    lines = render(ROWS).splitlines()
    assert lines[:3] == [
        "Survivors: 1",
        "  s.one mutant as_good: missed by 1 of 3 root seeds (2)",
        "    rankfault hunt s.one --bug as_good --root-seed 2 --plans 100",
    ]
    heads = [line for line in lines if line.endswith((": 1", "finding", "verified"))]
    assert heads == [
        "Survivors: 1", "False alarms: 1", "Not as declared: 1", "UNKNOWN: 1", "Not run: 1",
        "Declared equivalents, verified", "Twins without a finding",
    ]
    assert lines[lines.index("False alarms: 1") + 2] == "    rankfault replay rf1:abc"


def test_the_table():
    text = render([CAUGHT, FAULT])
    assert text.startswith(
        "s.one\n"
        "  mutant                   caught by                       plans  p95   P shrunk\n"
        "  no_barrier               deadlock/cycle                      2    4   2 2+1\n"
        "  fault                    caught by                       plans  p95   P shrunk\n"
        "  a_fault_with_a_name_that_is_long\n"
        "                           deadlock/cycle                      2    4   2 2+1?\n"
        "                           integrity/wrong_value\n\n"
    )


def test_a_row_that_nothing_caught_says_so():
    assert "as_good                  nothing " in render(
        [msgspec.structs.replace(SURVIVOR, found={})]
    )


@pytest.mark.parametrize("width", [10, 40, 50, 79, 80, 200])
def test_no_line_is_too_long_but_commands(width):
    for line in render(ROWS, width=width).splitlines():
        assert len(line) <= max(width, 40) or line.startswith("    rankfault ")
        assert line == line.rstrip()


def test_a_narrow_terminal_gets_words():
    text = " ".join(render([FAULT], width=40).split())
    assert (
        "fault a_fault_with_a_name_that_is_long: caught by deadlock/cycle, integrity/wrong_value; plans "
        "2, p95 4; from P=2 on; shrunk to 2 ranks, 1 deviation, not proven minimal"
    ) in text


def test_nothing_unprintable_gets_out():
    row = msgspec.structs.replace(ALARM, reason="ValueError: \x1b[31mred\x07")
    assert all(line.isprintable() for line in render([row]).splitlines())


def test_what_the_rows_add_up_to():
    assert summary(ROWS) == [
        "4 mutants and 1 (scenario, bug fault) pair in 3 scenarios: 3 caught, 1 survivor",
        "plans to detection: median 2, 95th percentile 101, most 101, in 12 hunts",
        "counterexamples proven minimal: 2 of 2 mutants, 0 of 1 faults",
        "mutants shrunk to the world that they declare: 2 of 2",
        "declared equivalents: 2, of which 1 verified in 300 plans",
        "twins: 2, 1 false alarm in 1,205 plans; fired: crash 1,000, late_put 5",
        "not as declared: 1 row",
        "unknown: 1 row",
        "not run: 1 row",
    ]
    assert summary([CAUGHT])[0].endswith("1 caught, 0 survivors")
    assert summary([CLEAN]) == [
        "0 mutants and 0 (scenario, bug fault) pairs in 1 scenario: 0 caught, 0 survivors",
        "twins: 1, 0 false alarms in 1,200 plans; fired: crash 1,000, late_put 5",
    ]


def test_the_json_object_counts_survivors_and_false_alarms():
    data = msgspec.json.decode(msgspec.json.encode(plain(ROWS)))
    assert set(data) == {"rows", "survivors", "false_alarms"}
    assert (data["survivors"], data["false_alarms"]) == (1, 1)
    assert [row["status"] for row in data["rows"][:5]] == [
        "survived", "false_alarm", "misdeclared", "unknown", "not_run"
    ]
    row = next(row for row in data["rows"] if row["name"] == "no_barrier")
    assert row["plans"] == [1, 2, 4]
    assert row["shrunk"]["ranks"] == 2
    assert row["command"] == "rankfault hunt s.one --bug no_barrier --root-seed 0 --plans 100"


def test_commands_quote_what_a_shell_would_take_apart():
    row = msgspec.structs.replace(ALARM, scenario="my file.py::one", root_seeds=())
    assert command(row) == "rankfault hunt 'my file.py::one'"
    assert command(UNKNOWN) == "rankfault hunt s.two --fault dropped_fence"
    assert replay(row) == "rankfault replay rf1:abc"
    assert replay(UNKNOWN) == ""
