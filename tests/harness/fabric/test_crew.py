"""How the processes of a world start: forked by the zygote, spawned, or from a server without imports."""

from pathlib import Path

import pytest

from harness import Plan, UsageError, Verdict, registry, run, scenario
from harness.fabric import crew
from harness.supervise import Limits
from systems.collectives.rounds import Rounds

USER = """\
from harness import scenario

with open("imports", "a") as file:
    file.write("i")
with open("/proc/self/cmdline") as file:
    BEGAN = file.read()

@scenario(reference=lambda size: [None] * size)
def began(rank):
    rank.barrier()
    return BEGAN
"""
MESH = Plan(scenario="collectives.allreduce_mesh", params=Rounds(), ranks=2)


@pytest.mark.parametrize(
    ("start", "command"), [("spawn", "import spawned"), ("forkserver", "import main")]
)
def test_a_rank_imports_its_program_by_itself(start, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(f"by_{start}.py").write_text(USER)
    found = registry.find(f"by_{start}.py::began")
    plan = Plan(scenario=found.name, params=found.params(), ranks=2)
    try:
        first = run(plan, "processes", start=start)
        assert all(command in began for (began,) in first.run.results)
        assert Path("imports").read_text() == 3 * "i"  # here, and in each process
        pids = [member.child.pid for member in crew.warm(2, start).members]
        conducted = run(MESH, "processes", start=start)
        natural = run(MESH, "processes", start=start, natural=1)
        assert conducted.run.identity() == run(MESH).run.identity()
        assert natural.verdict is Verdict.PASS
        assert [member.child.pid for member in crew.warm(2, start).members] == pids  # they are kept
    finally:
        crew.cool()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_a_program_inside_a_function_cannot_be_imported(start):
    @scenario(reference=lambda size: [None] * size)
    def inside(rank):
        rank.barrier()

    plan = Plan(scenario=inside.name, params=inside.params(), ranks=2)
    with pytest.raises(UsageError, match=f"start='{start}'.* defined inside a function.* start='fork'"):
        run(plan, "processes", scenario=inside, start=start)


def test_a_start_that_does_not_exist_and_one_without_processes_are_refused():
    with pytest.raises(UsageError, match="start='thread': choose one of: fork, spawn, forkserver"):
        run(MESH, "processes", start="thread")
    with pytest.raises(UsageError, match="the simulated fabric has no processes that start"):
        run(MESH, start="spawn")
    with pytest.raises(UsageError, match="the simulated fabric has no limits of time"):
        run(MESH, limits=Limits())


def test_limits_are_those_that_are_asked_for():
    @scenario(reference=lambda size: [None] * size)
    def loops(rank):
        rank.sync()
        while rank.index == 1:
            pass

    plan = Plan(scenario=loops.name, params=loops.params(), ranks=2)
    for limits, name in (
        (Limits(operation=0.3), "operation limit of 0.3 s"), (Limits(plan=0.3), "plan limit of 0.3 s"),
        (Limits(hunt=0.3), "hunt limit of 0.3 s"),
    ):
        found = run(plan, "processes", scenario=loops, limits=limits)
        assert f"no answer within the {name}" in found.findings[0].message


@pytest.mark.parametrize("field", ["operation", "plan", "hunt"])
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_limit_is_more_than_nothing(field, seconds):
    with pytest.raises(UsageError, match=f"{field} limit of .* s: seconds, more than 0, are due"):
        Limits(**{field: seconds})
