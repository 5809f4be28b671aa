"""Scripts as scenarios: endings, determinism, virtual time, what does not compile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import UserFileError
from harness.finding import Verdict
from harness.frontends.torch_distributed.script import script_scenario
from harness.hunt import hunt
from harness.portfolio import Order

WORK = """
x = torch.randn(3)
work = dist.all_reduce(x, async_op=True)
dist.barrier()
work.wait()
t = torch.zeros(1)
dist.send(t, (rank + 1) % size) if rank % 2 else dist.recv(t, (rank - 1) % size)
"""


def test_a_script_runs_as_main_with_its_file(script):
    outcome = script("""
        from pathlib import Path
        assert __name__ == "__main__"
        assert Path(__file__).read_text().strip().endswith("# the end")
        # the end
    """, 2)
    assert outcome.findings == ()


@pytest.mark.parametrize(("ending", "found"), [
    ("sys.exit()", []), ("sys.exit(0)", []), ("sys.exit(3)", ["exceptions/rank_exited"]),
    ("sys.exit('no')", ["exceptions/rank_exited"]), ("raise KeyError(1)", ["exceptions/key_error"]),
    ("assert False", ["exceptions/assertion_error"]),
])
def test_how_a_script_ends(script, ending, found):
    outcome = script(f"import sys\n{ending}", 2)
    assert [one.name for one in outcome.findings] == found
    assert all("program.py:8" in one.message or "program.py:9" in one.message for one in outcome.findings)


def test_the_same_plan_is_the_same_run(script):
    runs = [script(WORK, 4).run for _ in range(3)]
    assert len({run.identity() for run in runs}) == 1
    assert len({run.value_identity() for run in runs[1:]}) == 1


def test_a_fresh_process_makes_the_same_run(script, tmp_path):
    here = script(WORK, 4).run
    program = (
        "import sys\n"
        "from harness.frontends.torch_distributed.script import script_scenario\n"
        "from harness.plan import Plan\nfrom harness.run import run\n"
        "path = sys.argv[1]\nfound = script_scenario(path, open(path, 'rb').read())\n"
        "plan = Plan(scenario=path, params=found.params(), ranks=4)\n"
        "print(run(plan, scenario=found).run.identity())\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "program.py")], capture_output=True, text=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}, check=True,
    )
    assert told.stdout.strip() == here.identity()


def test_sleep_and_clocks_are_virtual(script):
    outcome = script("""
        import time
        begun = time.monotonic()
        time.sleep(1000 * rank)
        dist.barrier()
        assert time.monotonic() - begun >= 2000
    """, 3)
    assert outcome.findings == ()


def test_random_numbers_are_seeded_by_rank(script):
    runs = [script("print(torch.randn(2).tolist())", 2).run for _ in range(2)]
    assert runs[0].printed == runs[1].printed
    assert runs[0].printed[0] != runs[0].printed[1]


def test_a_hunt_in_a_correct_script_finds_nothing(script):
    order = Order(scenario=script.scenario(WORK, ranks=(2, 4)), root_seed=3, plans_max=40)
    found = hunt(order)
    assert found.finding is None
    assert len(found.statistics.identities) > 15
    assert found.statistics.notes == {}


def test_finally_blocks_of_ranks_that_are_left_over(script):
    outcome = script("""
        try:
            if rank == 0:
                raise ValueError("first")
            dist.barrier()
        finally:
            dist.barrier()
            dist.destroy_process_group()
    """, 3)
    assert outcome.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"def (:\n", "program.py:1: "), (b"x = 1\n\x00", "program.py"),
        ("x = \xe4".encode("latin-1"), "program.py:1: "),
    ],
)
def test_what_does_not_compile(text, told):
    with pytest.raises(UserFileError, match=told) as caught:
        script_scenario("program.py", text)
    assert "\n" not in str(caught.value)


def test_a_script_that_imports_what_is_not_there(script):
    (found, *_) = script("import absent_module", 2).findings
    assert found.kind == "module_not_found_error"
    assert "program.py:" in found.message
