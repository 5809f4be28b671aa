"""Calls of decorated functions: what is checked, bound and returned at each level.

Annotations of pld functions are evaluated when a function is defined: no `from __future__` here.
"""

import pytest
import torch

from harness.errors import PldRuleError
from harness.frontends.pypto.compiled import DistributedConfig
from harness.frontends.pypto.functions import returned
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.values import HostTensor

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
NR, N = pl.dynamic("NR"), pl.dynamic("N")
TWO = DistributedConfig(device_ids=[4, 7])


@pl.jit.incore
def double(x: pl.Tensor[[1, N], pl.FP32], y: pl.Out[pl.Tensor[[1, N], pl.FP32]]):
    return pl.store(pl.mul(pl.load(x, [0, 0], [1, N]), 2.0), [0, 0], y)


@pl.jit
def chip(x: pl.Tensor[[1, N], pl.FP32], y: pl.Out[pl.Tensor[[1, N], pl.FP32]]):
    return double(x, y)


@pl.jit.host
def host(x: pl.Tensor[[NR, 1, N], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, N], pl.FP32]]):
    for r in pl.range(pld.world_size()):
        chip(x[r], y[r], device=r)


def rule_of(body):
    """The rule that a one-device host function of this body breaks."""

    @pl.jit.host
    def one(x: pl.Tensor[[1, 4], pl.FP32], y: pl.Out[pl.Tensor[[1, 4], pl.FP32]]):
        body(x, y)

    with pytest.raises(Exception, match="raised at") as caught:
        one(torch.ones(1, 4), torch.zeros(1, 4))
    return caught.value.outcome.findings[0].name


@pytest.mark.parametrize("n", [1, 3, 8])
def test_dynamic_extents_are_those_of_the_arguments(n):
    x = torch.arange(2.0 * n).reshape(2, 1, n)
    y = torch.zeros_like(x)
    host(x, y, config=TWO)
    assert torch.equal(y, 2 * x)


def test_a_strided_argument_is_copied_in_and_out():
    x = torch.arange(16.0).reshape(2, 1, 8)
    y = torch.zeros(8, 1, 2).permute(2, 1, 0)
    assert not y.is_contiguous()
    host(x, y, config=TWO)
    assert torch.equal(y, 2 * x)


def test_a_device_that_is_none_is_refused():
    assert rule_of(lambda x, y: chip(x, y, device=1)) == "pld/wrong_device"


def test_a_tensor_of_another_type_or_shape_is_refused():
    @pl.jit
    def ints(x: pl.Tensor[[1, 4], pl.INT32]):
        return x

    @pl.jit
    def larger(x: pl.Tensor[[1, 5], pl.FP32]):
        return x

    @pl.jit
    def window(x: pld.DistributedTensor[[1, 4], pl.FP32]):
        return x

    @pl.jit
    def scalar(x: pl.Scalar[pl.INT32]):
        return x

    assert rule_of(lambda x, y: ints(x, device=0)) == "pld/wrong_dtype"
    assert rule_of(lambda x, y: larger(x, device=0)) == "pld/wrong_shape"
    assert rule_of(lambda x, y: window(x, device=0)) == "pld/not_a_window"
    assert rule_of(lambda x, y: scalar(x, device=0)) == "pld/wrong_operand"


def test_a_kernel_is_not_called_from_ordinary_python():
    with pytest.raises(PldRuleError, match="double runs on a device"):
        double(torch.zeros(1, 4), torch.zeros(1, 4))


def test_arguments_are_counted_and_named():
    with pytest.raises(TypeError, match=r"chip\(\) lacks y"):
        chip.ordered((1,), {})
    with pytest.raises(TypeError, match=r"chip\(\) takes 2 arguments: x, y; given 1 and z"):
        chip.ordered((1,), {"z": 2})
    assert chip.ordered((1,), {"y": 2}) == [1, 2]


def test_a_dispatch_returns_what_it_writes():
    a, b, c = (HostTensor(torch.zeros(n), name) for n, name in ((4, "a"), (4, "b"), (5, "c")))

    @pl.jit
    def both(
        a: pl.Tensor[[4], pl.FP32], b: pl.Out[pl.Tensor[[4], pl.FP32]],
        c: pl.InOut[pl.Tensor[[5], pl.FP32]],
    ):
        return b, c

    @pl.jit
    def second(
        a: pl.Tensor[[4], pl.FP32], b: pl.Out[pl.Tensor[[4], pl.FP32]],
        c: pl.InOut[pl.Tensor[[5], pl.FP32]],
    ) -> pl.Tensor[[5], pl.FP32]:
        return c

    assert returned(both, [a, b, c]) == (b, c)
    assert returned(second, [a, b, c]) is c
    assert returned(chip, [a, b]) is b


def test_a_program_class_keeps_its_self_and_runs_its_sub_workers_when_their_input_is_there():
    @pl.program
    class Sums:
        @pl.function(type=pl.FunctionType.InCore)
        def add(self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]]):
            return pl.store(pl.add(pl.load(x, [0], [4]), 1.0), [0], y)

        @pl.function(type=pl.FunctionType.Orchestration)
        def orch(self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]]):
            return self.add(x, y)

        @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
        def gather(a: pl.Tensor[[4], pl.FP32], b: pl.Out[pl.Tensor[[4], pl.FP32]]):
            b[:] = a * 10

        @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
        def main(self, x: pl.Tensor[[4], pl.FP32], y: pl.Out[pl.Tensor[[4], pl.FP32]]):
            between = pl.create_tensor([4], dtype=pl.FP32)
            self.gather(self.orch(x, between), y)

    compiled = modules()["pypto.ir"].compile(Sums, distributed_config=DistributedConfig([0]))
    x, y = torch.arange(4.0), torch.zeros(4)
    compiled(x, y)
    assert torch.equal(y, 10 * (x + 1))
