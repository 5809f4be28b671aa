"""Compiled programs and prepared workers: outputs that are left out, windows that stay, what is refused.

Annotations of pld functions are evaluated when a function is defined: no `from __future__` here.
"""

import pytest
import torch

from harness.errors import PldRuleError
from harness.frontends.pypto.compiled import Compiled, DistributedConfig, DistributedWorker, RunConfig
from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
TWO = RunConfig(distributed_config=DistributedConfig(device_ids=[0, 1]))


@pl.jit
def count(y: pl.Out[pl.Tensor[[1], pl.INT32]], cell: pl.InOut[pld.DistributedTensor[[1], pl.INT32]]):
    me = pld.rank(pld.get_comm_ctx(cell))
    pld.system.notify(cell, me, [0], 1, op=pld.NotifyOp.AtomicAdd)
    pl.write(y, [0], pl.read(cell, [0]))
    return y


@pl.jit.host
def counted(y: pl.Out[pl.Tensor[[2, 1], pl.INT32]]):
    buf = pld.alloc_window_buffer(pl.INT32.get_byte())
    for r in pl.range(pld.world_size()):
        count(y[r], pld.window(buf, [1], dtype=pl.INT32), device=r)


def shared():
    return torch.zeros(2, 1, dtype=torch.int32).share_memory_()


def test_an_output_that_is_left_out_is_returned():
    found = counted.compile(config=TWO)()
    assert found.tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("options", "last"),
    [({}, 1), ({"persistent": True}, 1), ({"persistent": True, "reset_persistent_windows": False}, 3)],
)
def test_windows_stay_only_where_they_are_not_reset(options, last):
    y = shared()
    with counted.compile(config=TWO).prepare(**options) as worker:
        for _ in range(3):
            worker(y)
    assert y.tolist() == [[last], [last]]


def test_a_worker_wants_shared_memory():
    with counted.compile(config=TWO).prepare() as worker, pytest.raises(PldRuleError) as caught:
        worker(torch.zeros(2, 1, dtype=torch.int32))
    assert caught.value.rule == "not_shared"


def test_a_worker_of_several_programs_is_told_which():
    one, two = counted.compile(config=TWO), counted.compile(config=TWO)
    worker = DistributedWorker([one, two])
    with pytest.raises(TypeError, match="ambiguous"):
        worker(shared())
    y = shared()
    worker.register(two)(y)
    assert y.tolist() == [[1], [1]]


def test_after_close_nothing_goes():
    worker = counted.compile(config=TWO).prepare()
    handle = worker.register(worker.programs[0])
    worker.close()
    assert handle.closed
    with pytest.raises(RuntimeError, match="called after close"):
        handle(shared())


def test_an_override_names_a_sub_worker():
    with pytest.raises(ValueError, match="nobody are not sub-workers"):
        counted.compile(config=TWO).prepare(sub_worker_overrides={"nobody": print})


def test_only_programs_are_compiled():
    with pytest.raises(TypeError, match=r"3 is no @pl\.program class"):
        modules()["pypto.ir"].compile(3)
    assert isinstance(modules()["pypto.ir"].compile(counted), Compiled)
