"""Small scripts for what programs from the field brought up, each with what real gloo prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from harness import registry
from harness.errors import UsageError
from harness.fabric import threads
from harness.finding import Outcome, Verdict
from harness.plan import Plan
from harness.run import run

BEGIN = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\nr = dist.get_rank()\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def outcome_of(text: str, ranks: int = 3) -> Outcome:
    Path("train.py").write_text(BEGIN + text)
    scenario = registry.find_all("train.py")[0]
    return run(Plan(scenario=scenario.name, params=scenario.params(), ranks=ranks), scenario=scenario)


def printed(text: str, ranks: int = 3) -> list[str]:
    outcome = outcome_of(text, ranks)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    return [one.strip() for one in outcome.run.printed]


def test_a_library_imported_within_the_run_keeps_nobodys_world(tmp_path, monkeypatch):
    """Its default argument `group=group.WORLD` is evaluated in whichever rank comes first."""
    module = tmp_path / "lib" / "installed.py"
    module.parent.mkdir()
    module.write_text(
        "from torch.distributed import all_reduce, group\n"
        "class Kept:\n    world = group.WORLD\n"
        "def total(x, group=group.WORLD):\n    all_reduce(x, group=group)\n    return x.item()\n"
    )
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.setattr("harness.fabric.frames._LIBRARIES", (str(module.parent),))
    text = (
        "dist.barrier()\nfrom installed import Kept, total\n"
        "print(total(torch.tensor(r)), Kept.world, dist.group.WORLD is None)\n"
    )
    assert printed(text) == ["3 None False"] * 3


def test_a_group_that_another_rank_has_made_is_refused(tmp_path):
    """As a module that all ranks share would hand it out."""
    text = (
        "torch.kept = vars(torch).get('kept') or dist.group.WORLD\n"
        "dist.all_reduce(torch.ones(1), group=torch.kept)\n"
    )
    try:
        outcome = outcome_of(text)
    finally:
        vars(torch).pop("kept", None)
    first = outcome.findings[0]
    assert "all_reduce at train.py:5 in <module>: this handle of group '0' is rank" in first.message
    assert "a module that all ranks share" in first.message


JOIN = """
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
with Join([model]):
    for _ in range(2 + r):
        model(torch.ones(1)).sum().backward()
print(model.module.weight.grad.item())
"""


def test_ddp_with_uneven_inputs_waits_for_native_futures():
    assert len(printed(JOIN)) == 3


def test_futures_are_waited_for_together():
    text = (
        "tensors = [torch.ones(1) * i for i in range(3)]\n"
        "futures = [dist.all_reduce(t, async_op=True).get_future() for t in tensors]\n"
        "torch.futures.wait_all(futures)\nprint([t.item() for t in tensors])\n"
    )
    assert printed(text) == ["[0.0, 3.0, 6.0]"] * 3


@pytest.mark.parametrize(
    "line",
    ["torch.cuda.cudart()", "torch.cuda.make_graphed_callables(print, ())", "torch.cuda.CUDAGraph()"],
)
def test_what_of_cuda_has_no_counterpart_is_told(line):
    message = outcome_of(line + "\n").findings[0]
    assert message.kind == "no_device"
    assert "train.py:" in message.message
    assert "CPU" in message.cause
    assert "torch.cuda.is_available()" in message.remedy


def test_a_path_may_be_absolute_where_it_lies_below_the_working_directory(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(BEGIN)
    found = registry.find_all(str(tmp_path / "sub" / "train.py"))
    assert [one.name for one in found] == ["sub/train.py::__main__"]
    assert registry.find_all("sub/../sub/train.py")[0].name == "sub/train.py::__main__"


def test_a_path_elsewhere_says_where_to_go(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.py").write_text(BEGIN)
    monkeypatch.chdir(tmp_path / "sub")
    with pytest.raises(UsageError, match=r"\.\./train\.py: .*below the working directory.*cd \.\."):
        registry.find_all("../train.py")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dist.all_reduce(torch.arange(6.)[::2])", r"all_reduce at train.py:4 .*strides \(2,\): gloo"),
        ("dist.broadcast(torch.ones(1).expand(4), 0)", r"broadcast at train.py:4 .*\.contiguous\(\)"),
        ("dist.isend(torch.ones(2, 3).t(), (r + 1) % 3).wait()", r"send at train.py.*strides \(1, 3\)"),
        ("dist.broadcast(torch.eye(2).to_sparse(), 0)", r"broadcast at train.py:4 .*a sparse tensor"),
        ("dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX)",
         r"all_reduce at train.py:4 .*sparse tensors only works with ReduceOp.SUM"),
        ("dist.broadcast(torch.ones(1), src=99)", r"broadcast at train.py:4 .*root 99 is outside"),
    ],
)
def test_tensors_that_gloo_would_mangle_are_refused(line, told):
    """Real gloo adds up, or sends, what lies between the elements, and says nothing."""
    found = outcome_of(line + "\n").findings[0]
    assert (found.checker, found.kind) == ("exceptions", "wrong_collective")
    assert re.search(told, found.message)


def test_strides_that_gloo_takes_are_taken():
    text = (
        "x = torch.arange(6.).view(2, 3).t()\ndist.all_reduce(x)\n"
        "out = [torch.zeros(3) for _ in range(3)]\ndist.all_gather(out, torch.arange(6.)[::2])\n"
        "print(x.tolist(), out[1].tolist())\n"
    )
    assert printed(text) == ["[[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]] [0.0, 2.0, 4.0]"] * 3


SPARSE = """
x = torch.sparse_coo_tensor(torch.tensor([[0, r]]), torch.ones(2), (5,))
dist.all_reduce(x)
print(x.is_coalesced(), x.indices().tolist(), x.values().tolist())
none = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0, 2), (5, 2))
held = none if r else torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (5, 2))
other = torch.ones(3)
works = [dist.all_reduce(t, async_op=True) for t in (held, other)]
[work.wait() for work in works]
print(held.coalesce().indices().tolist(), held.coalesce().values().tolist(), other.tolist())
"""


def test_sparse_tensors_are_summed_as_gloo_does():
    assert printed(SPARSE) == [
        "True [[0, 1, 2]] [4.0, 1.0, 1.0]\n[[1]] [[1.0, 1.0]] [3.0, 3.0, 3.0]"
    ] * 3


def test_sparse_gradients_of_ddp():
    text = (
        "torch.manual_seed(0)\n"
        "m = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(3, 1, sparse=True))\n"
        "m(torch.tensor([r])).sum().backward()\n"
        "print((m.module.weight.grad.to_dense() * 3).tolist())\n"
    )
    assert printed(text) == ["[[1.0], [1.0], [1.0]]"] * 3


def test_a_sparse_tensor_meets_a_dense_one():
    text = "x = torch.eye(3)\ndist.all_reduce(x.to_sparse() if r == 1 else x)\n"
    found = outcome_of(text).findings[0]
    assert found.kind == "different_dtype"
    assert "rank 1 passes float32 sparse, rank 0 passes float32" in found.message


def test_several_tensors_gathered_at_once():
    text = (
        "outs = [[torch.empty(1), torch.empty(2)] for _ in range(3)]\n"
        "dist.all_gather_coalesced(outs, [torch.ones(1) * r, torch.ones(2) * r])\n"
        "print([[t.sum().item() for t in each] for each in outs])\n"
    )
    assert printed(text) == ["[[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]"] * 3


UNUSED = """
import torch.distributed._functional_collectives as funcol
for _ in range(2):  # the first one to warm up
    x = funcol.all_reduce(torch.ones(2), "sum", dist.group.WORLD)
print(x.sum().item())
"""


def test_a_functional_result_that_nobody_uses():
    assert printed(UNUSED) == ["6.0"] * 3


def test_callbacks_of_futures_run_in_their_own_rank():
    """They may make calls of their own, as PowerSGD's do."""
    text = (
        "def again(future):\n    x = future.value()[0] + r\n    dist.all_reduce(x)\n    return x.item()\n"
        "f = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(again)\n"
        "print(r, f.wait())\n"
    )
    assert printed(text) == ["0 12.0", "1 12.0", "2 12.0"]


MESH = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
x = distribute_tensor(torch.arange(16.).view(4, 4), mesh, [Replicate(), Shard(1)])
print((x @ x.T).redistribute(mesh, [Replicate(), Replicate()]).to_local().sum().item())
"""


def test_a_thread_that_was_another_rank_remembers_none_of_its_meshes():
    """torch caches by thread what DTensors come to, with their meshes and groups."""
    for _ in range(3):
        assert printed(MESH, 4) == ["3680.0"] * 4
        threads._pool.insert(0, threads._pool.pop())


def test_the_default_dtype_is_a_ranks_own_and_ends_with_it():
    text = (
        "if r == 1: torch.set_default_dtype(torch.float64)\n"
        "dist.barrier()\nprint(torch.ones(1).dtype)\n"
    )
    assert printed(text, 2) == ["torch.float32", "torch.float64"]
    assert torch.get_default_dtype() is torch.float32
