"""Files of pld programs as scenarios: names, calls, the program's own check, seeds that replay."""

import textwrap

import pytest

from harness import corpus, registry
from harness.errors import UnknownName, UserFileError
from harness.frontends.pypto.programs import program_of
from harness.frontends.pypto.scenarios import scenarios_in
from harness.hunt import hunt
from harness.plan import Plan
from harness.portfolio import Order
from harness.run import run

PROGRAM = textwrap.dedent("""
    import sys
    import torch
    import pypto.language as pl
    import pypto.language.distributed as pld
    from pypto.ir.distributed_compiled_program import DistributedConfig
    from pypto.runtime import RunConfig

    NR = pl.dynamic("NR")

    @pl.jit
    def swap(
        x: pl.Tensor[[1, 4], pl.FP32], y: pl.Out[pl.Tensor[[1, 4], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[1, 4], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1], pl.INT32]],
    ):
        ctx = pld.get_comm_ctx(data)
        me, n = pld.rank(ctx), pld.nranks(ctx)
        peer = (me + 1) % n
        pl.store(pl.load(x, [0, 0], [1, 4]), [0, 0], data)
        pld.system.notify(signal, (me + n - 1) % n, [0], 1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal, [0], NEEDED, cmp=pld.WaitCmp.Ge)
        return pl.store(pld.tile.remote_load(data, peer, [0, 0], [1, 4]), [0, 0], y)

    @pl.jit.host
    def ring(x: pl.Tensor[[NR, 1, 4], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, 4], pl.FP32]]):
        data = pld.alloc_window_buffer([1, 4], dtype=pl.FP32)
        signal = pld.alloc_window_buffer([1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            swap(
                x[r], y[r], pld.window(data, [1, 4], dtype=pl.FP32),
                pld.window(signal, [1], dtype=pl.INT32), device=r,
            )

    def main():
        n = int(sys.argv[1]) if len(sys.argv) > 1 else 2
        config = RunConfig(distributed_config=DistributedConfig(device_ids=range(n)))
        for _ in range(CALLS):
            x = torch.randn(n, 1, 4)
            y = torch.zeros_like(x)
            ring(x, y, config=config)
            CHECK
            print("right")

    if __name__ == "__main__":
        main()
""")
CHECK = "assert torch.equal(y, x.roll(-1, 0)), 'not the neighbour\\'s'"
TESTS = PROGRAM + textwrap.dedent("""
    import pytest

    class TestRing:
        @pytest.mark.parametrize("n", [2, 3])
        def test_ring(self, n):
            sys.argv[1:] = [str(n)]
            main()

    def test_nothing():
        pass
""")


def text(program=PROGRAM, *, needed=1, calls=1, check=CHECK):
    return (
        program.replace("NEEDED", str(needed)).replace("CALLS", str(calls)).replace("CHECK", check)
    ).encode()


def default(scenario, ranks=2):
    return run(Plan(scenario=scenario.name, params=scenario.params(), ranks=ranks), scenario=scenario)


def test_each_call_of_the_main_is_a_scenario():
    made = scenarios_in("ring.py", text(calls=2))
    assert [one.name for one in made] == ["ring.py::main", "ring.py::main#2"]
    assert {one.usual_ranks for one in made} == {(2, 2)}
    assert default(made[1]).findings == ()
    assert program_of("ring.py", text(calls=2), ()).printed == "right\nright\n"


def test_the_main_s_arguments_are_part_of_the_plan():
    made, = scenarios_in("ring.py", text(), ["3"])
    assert made.usual_ranks == (3, 3)
    assert made.params().argv == ("3",)


def test_a_check_that_fails_is_a_finding_at_the_user_s_line():
    source = text(check="assert y[0, 0, 0] == 77, 'never'")
    made, = scenarios_in("ring.py", source)
    found, = default(made).findings
    line = source.decode().split("\n").index("        assert y[0, 0, 0] == 77, 'never'") + 1
    assert found.name == "golden/check_failed"
    assert f"ring.py:{line} in main: AssertionError: never" in found.message


@pytest.mark.parametrize(
    ("check", "name"), [(CHECK, "golden/check_failed"), ("pass", "golden/depends_on_schedule")]
)
def test_a_schedule_that_changes_the_outputs_is_judged_by_the_program(check, name):
    made, = scenarios_in("ring.py", text(needed=0, check=check))
    result = hunt(Order(made, 1, plans_max=60))
    names = {one.name for one in result.outcome.findings} if result.outcome else set()
    assert result.finding is not None
    assert names & {"races/unordered_read", "integrity/wrong_value", "integrity/stale_value", name}


def test_a_program_that_accepts_the_difference_has_no_finding_of_values():
    accepts = "assert torch.equal(y, x.roll(-1, 0)) or not y[0].any() or not y[1].any()"
    made, = scenarios_in("ring.py", text(needed=0, check=accepts))
    result = hunt(Order(made, 1, plans_max=60))
    assert result.finding.checker == "races"


def test_a_correct_program_is_not_accused():
    made, = scenarios_in("ring.py", text())
    result = hunt(Order(made, 1, plans_max=60))
    assert result.finding is None
    assert result.statistics.plans == 60


def test_a_host_function_by_its_name_is_called_twice_as_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.py").write_bytes(text())
    made, = registry.find_all("ring.py::ring")
    result = hunt(Order(made, 1, plans_max=80))
    assert result.finding is not None, "the signal of the first call satisfies the second"
    assert result.outcome.plan.params.rounds == 2


def test_tests_are_scenarios_under_pytest_s_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_ring.py").write_bytes(text(TESTS))
    made = {one.name: one for one in registry.find_all("test_ring.py")}
    assert {one.ranks for one in made.values() if not one.missing} == {(2, 2), (3, 3)}
    assert list(made) == [
        "test_ring.py::TestRing::test_ring[2]", "test_ring.py::TestRing::test_ring[3]",
        "test_ring.py::test_nothing",
    ]
    assert made["test_ring.py::test_nothing"].missing == "it calls no host function"
    assert [one.name for one in registry.find_all("test_ring.py::TestRing")] == list(made)[:2]
    assert default(made["test_ring.py::TestRing::test_ring[3]"], 3).findings == ()


def test_a_folder_is_all_its_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "ring.py").write_bytes(text())
    (tmp_path / "all" / "broken.py").write_text("import pypto.language as pl\npl.gather(1)\n")
    (tmp_path / "all" / "other.py").write_text("import torch\n")
    (tmp_path / "all" / "no_python.py").write_text("def f(:\n    pass\n")
    (tmp_path / "all" / "unfinished.py").write_text("import pypto.language as pl\ndef f(:\n")
    made = registry.find_all("all")
    assert [one.name for one in made] == ["all/broken.py", "all/ring.py::main", "all/unfinished.py"]
    assert made[2].missing == "all/unfinished.py:2: invalid syntax"
    assert "all/broken.py:2" in made[0].missing
    assert "pl.gather is not simulated" in made[0].missing


def test_a_seed_replays_from_the_file_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.py").write_bytes(text(needed=0))
    made, = registry.find_all("ring.py", argv=["3"])
    result = hunt(Order(made, 1, plans_max=60))
    program_of.cache_clear()
    plan, scenario = corpus.plan_of_token(corpus.token_of(result.outcome.plan))
    again = run(plan, scenario=scenario, races=True)
    assert again.finds(result.finding.identity) is not None
    assert again.run.identity() == result.outcome.run.identity()


def test_names_that_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.py").write_bytes(text())
    with pytest.raises(UnknownName, match="host call in ring"):
        registry.find_all("ring.py::rang")
    with pytest.raises(UserFileError, match=r"failed at ring\.py:\d+ in main before any host call"):
        registry.find_all("ring.py", argv=["x"])
