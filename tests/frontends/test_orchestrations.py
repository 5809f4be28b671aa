"""A program with several chip orchestrations: one is chosen by its name, and runs."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from harness.frontends.pypto.modules import installed

PROGRAM = """
import pypto.language as pl
from pypto import ir

@pl.program
class Two:
    @pl.function(type=pl.FunctionType.InCore)
    def shift(
        self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]], by: pl.Scalar[pl.INT32]
    ) -> pl.Tensor[[4], pl.FP32]:
        return pl.store(pl.add(pl.load(x, [0], [4]), pl.cast(by, pl.FP32)), [0], y)

    @pl.function(type=pl.FunctionType.Orchestration)
    def up(self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]]):
        return self.shift(x, y, 1)

    @pl.function(type=pl.FunctionType.Orchestration)
    def down(self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]]):
        return self.shift(x, y, -1)

compiled = ir.compile(Two, platform="a2a3sim", output_dir="builds")
"""


@pytest.fixture
def compiled(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(PROGRAM)
    module = ModuleType("two")
    with installed(asked=True):
        exec(compile(PROGRAM, str(file), "exec"), module.__dict__)
        yield module.compiled


def test_each_is_there_by_name_and_runs(compiled):
    x = torch.arange(4.0)
    for chosen, moved in ((compiled["up"], x + 1), (compiled.down, x - 1)):
        y = torch.zeros(4)
        chosen(x, y)
        assert torch.equal(y, moved)


def test_what_is_known_of_each(compiled):
    assert compiled.orchestration_names == ["up", "down"]
    assert (compiled["up"].name, compiled["up"].param_names) == ("up", ["x", "y"])
    assert compiled["down"].output_dir.as_posix() == "builds/next_levels/down"


def test_none_is_chosen_by_itself(compiled):
    with pytest.raises(TypeError, match=r"Two has the orchestrations up, down: select one explicitly"):
        compiled(torch.zeros(4), torch.zeros(4))
    with pytest.raises(KeyError, match="Two has up, down, not left"):
        compiled["left"]
    with pytest.raises(AttributeError, match="no attribute 'left'"):
        compiled.left  # noqa: B018
