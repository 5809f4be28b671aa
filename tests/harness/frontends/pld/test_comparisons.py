"""What a program's own check compares its outputs with, and what that says of a wrong one."""

import textwrap

import pytest
import torch

from harness.frontends.pypto.comparisons import compared
from harness.frontends.pypto.programs import program_of
from harness.frontends.pypto.scenarios import scenarios_in
from harness.plan import Plan
from harness.run import run

PROGRAM = textwrap.dedent("""
    import torch
    import pypto.language as pl
    import pypto.language.distributed as pld
    from pypto.ir.distributed_compiled_program import DistributedConfig
    from pypto.runtime import RunConfig

    NR = pl.dynamic("NR")

    @pl.jit
    def double(x: pl.Tensor[[1, 4], pl.FP32], y: pl.Out[pl.Tensor[[1, 4], pl.FP32]]):
        return pl.store(pl.mul(pl.load(x, [0, 0], [1, 4]), 2.0), [0, 0], y)

    @pl.jit.host
    def doubled(x: pl.Tensor[[NR, 1, 4], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, 4], pl.FP32]]):
        for r in pl.range(pld.world_size()):
            double(x[r], y[r], device=r)

    def main():
        config = RunConfig(distributed_config=DistributedConfig(device_ids=[0, 1]))
        x = torch.arange(8.0).reshape(2, 1, 4)
        y = torch.zeros_like(x)
        doubled(x, y, config=config)
        due = x * 2
        due[1, 0, 2] = 99.0
        CHECK

    if __name__ == "__main__":
        main()
""")


def text(check):
    return PROGRAM.replace("CHECK", check).encode()


CHECKS = [
    "assert torch.equal(y, due)", "assert y.equal(due)", "assert torch.allclose(due, y, rtol=1e-3)",
    "assert y.allclose(due)", "assert torch.isclose(y, due).all()", "torch.testing.assert_close(y, due)",
    "for r in range(2): assert torch.allclose(y[r], due[r]), f'{(y[r] - due[r]).abs().max()}'",
    "assert torch.equal(y.view(-1)[5:], due.view(-1)[5:])",
    "assert torch.equal(input=y, other=due)",
    "assert not torch.equal(y, x)\n    assert torch.equal(y[1], due[1].double().float())",
]


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_due_is_read_off_the_comparison_that_fails(check):
    made, = scenarios_in("twice.py", text(check))
    found, = run(Plan(scenario=made.name, params=made.params(), ranks=2), scenario=made).findings
    assert (found.name, found.rank) == ("golden/check_failed", 1)
    assert found.evidence[0] == (
        "'y' of rank 1: element 2 is 12.0, expected 99.0; 1 of 4 elements is wrong"
    )


@pytest.mark.parametrize("check", [
    "assert y.sum() == 99.0", "assert torch.equal(y.clone(), due)", "assert torch.equal(y, due[0])",
    "assert torch.equal(y, y + 0) and y[0, 0, 0] == 9", "assert torch.equal(x, due)",
])
def test_a_check_that_tells_nothing_of_the_outputs(check):
    program = program_of("twice.py", text(check), (), "main")
    assert program.failed is not None
    assert program.due(0, program.calls[0].outputs) is None


def test_only_until_the_next_call():
    class Call:
        written = (0,)

        def __init__(self, tensor):
            self.args = [tensor]

    def runs(performer):
        for value in (2.0, 3.0):
            tensor = torch.zeros(2)
            performer.perform(Call(tensor))
            torch.equal(tensor, torch.tensor([1.0, value]))

    given = [[torch.tensor([1.0, 1.0])], [torch.tensor([1.0, 1.0])]]
    for number, due in ((0, 2.0), (1, 3.0)):
        assert [one.tolist() for one in compared(runs, given, number)] == [[1.0, due]]
