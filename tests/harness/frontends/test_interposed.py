"""The group before the real one: nobody notices it, it sees every call, DDP and FSDP2 run behind it."""

from datetime import timedelta

import pytest
import torch

from faults.process_groups import CorruptInput, CorruptResult, SwappedCalls
from harness.fabric.real_ranks import run_real
from harness.frontends.torch_distributed.interposed import Door, _flip
from harness.supervise import Limits

LIMITS = Limits(operation=10, plan=90)
HEAVY = ("torch._dynamo", "torch.distributed.fsdp")
GROUPS = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group(ASKED)
rank, size = dist.get_rank(), dist.get_world_size()
print(dist.get_backend())
pair = dist.new_group([2, 0])
print(dist.get_process_group_ranks(pair) if rank != 1 else "not a member", dist.get_world_size(pair))
if rank != 1:
    x = torch.full((2,), rank + 1)
    dist.broadcast(x, 2, group=pair)
    print(x.tolist())
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
print(objects)
ops = [dist.P2POp(dist.isend, torch.full((1,), rank), (rank + 1) % size)]
got = torch.zeros(1, dtype=torch.int64)
ops.append(dist.P2POp(dist.irecv, got, (rank - 1) % size))
for work in dist.batch_isend_irecv(ops): work.wait()
print(got.item())
mesh = init_device_mesh("cpu", (size,))
y = torch.ones(2); dist.all_reduce(y, group=mesh.get_group()); print(y.tolist())
dist.destroy_process_group(pair)
dist.destroy_process_group()
"""
DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group()
torch.manual_seed(0)
linear = torch.nn.Linear
model = torch.nn.Sequential(linear(8, 32), torch.nn.ReLU(), linear(32, 32), linear(32, 4))
wrapped = DistributedDataParallel(model, bucket_cap_mb=0.001)
for step in range(2):
    given = torch.randn(16, 8, generator=torch.Generator().manual_seed(step * 100 + dist.get_rank()))
    wrapped(given).square().mean().backward()
print(sum(float(p.grad.double().sum()) for p in model.parameters()))
dist.destroy_process_group()
"""
FSDP = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
import torch.distributed._functional_collectives as functional
dist.init_process_group("gloo")
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
fully_shard(model[0], mesh=mesh); fully_shard(model, mesh=mesh)
given = torch.randn(16, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
model(given).square().mean().backward()
print(sum(float(p.grad.full_tensor().double().abs().sum()) for p in model.parameters()))
print(functional.all_reduce(torch.ones(4), "sum", mesh).tolist())
dist.destroy_process_group()
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("asked", ["'gloo'", "'cpu:gloo'"])
def test_a_program_has_the_backend_that_it_asked_for(script, asked):
    outcome = run_real(script(GROUPS.replace("ASKED", asked)), ranks=3, limits=LIMITS)
    assert outcome.first is None, outcome
    told = [one.printed.splitlines() for one in outcome.ranks]
    assert [one[0] for one in told] == [asked.strip("'")] * 3
    objects = str([{"rank": rank} for rank in range(3)])
    assert told[0][1:] == ["[0, 2] 2", "[3, 3]", objects, "2", "[3.0, 3.0]"]
    assert told[1][1:] == ["not a member -1", objects, "0", "[3.0, 3.0]"]
    broadcast = next(call for call in outcome.ranks[0].calls if call.kind == "broadcast")
    assert (broadcast.group, broadcast.root, broadcast.rank) == ((0, 2), 2, 0)
    sent = next(call for call in outcome.ranks[0].calls if call.kind == "send")
    assert (sent.peer, sent.async_op) == (1, False)


def test_ddp_trains_behind_it_and_feels_its_faults(script):
    path = script(DDP)
    outcome = run_real(path, ranks=2, limits=LIMITS, preload=HEAVY)
    assert outcome.first is None, outcome
    right = [one.printed for one in outcome.ranks]
    assert right[0] == right[1]
    kinds = [call.kind for call in outcome.ranks[0].calls]
    assert kinds.count("all_reduce") >= 3
    assert {"all_gather", "broadcast", "all_reduce"} <= set(kinds)
    for kind in (CorruptInput, CorruptResult):
        fault = kind(rank=1, call="all_reduce", nth=2)
        changed = run_real(path, ranks=2, faults=[fault], limits=LIMITS, preload=HEAVY)
        assert changed.fired == (1,)
        assert [found.kind for found in changed.findings(right)] == ["silence"]


@pytest.mark.nightly
def test_ddp_buckets_change_places_and_gloo_aborts_a_rank(script):
    swapped = SwappedCalls(rank=1, call="all_reduce", nth=1)
    outcome = run_real(script(DDP), ranks=2, faults=[swapped], limits=LIMITS, preload=HEAVY)
    assert outcome.fired == (1,)
    assert -6 in [one.code for one in outcome.ranks]
    assert any("op.preamble.length <= op.nbytes" in one.log for one in outcome.ranks)


@pytest.mark.nightly
def test_fsdp2_and_functional_collectives_run_behind_it(script):
    outcome = run_real(script(FSDP), ranks=2, limits=LIMITS, preload=HEAVY)
    assert outcome.first is None, outcome
    assert outcome.ranks[0].printed == outcome.ranks[1].printed
    assert {"all_gather_into_tensor", "reduce_scatter_tensor"} <= {c.kind for c in outcome.ranks[0].calls}


def test_detail_still_compares_what_the_ranks_call(script):
    path = script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.all_reduce(torch.ones(4 + dist.get_rank()))\n"
    )
    outcome = run_real(path, ranks=2, limits=LIMITS, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert [one.code for one in outcome.ranks] == [1, 1]
    assert all("Detected mismatch between collectives" in one.log for one in outcome.ranks)


DTYPES = [torch.float32, torch.bfloat16, torch.bool, torch.int8, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_of_one_element_is_flipped(dtype):
    base = torch.full((4, 6), 1 + 1j if dtype.is_complex else 1).to(dtype)
    whole = base.clone()
    view = base[1:3, ::2]
    _flip([torch.empty(0), view.T], (7, 0))  # wraps around to the second of six, by columns
    assert (base != whole).nonzero().tolist() == [[2, 0]]
    _flip([torch.empty(0), view.T], (7, 0))
    assert torch.equal(base, whole)


def test_bits_are_counted_from_the_highest():
    tensor = torch.tensor([1.0], requires_grad=True)
    _flip([tensor], (0, 0))
    assert tensor.item() == -1.0
    assert tensor.requires_grad
    number = torch.tensor(0, dtype=torch.int16)
    _flip([number], (0, 15))
    assert number.item() == 1


def test_memory_is_told_apart_by_storage_and_bytes():
    door = Door()
    base = torch.zeros(8)
    one, other, elsewhere = door.meta(base[:4]), door.meta(base[4:]), door.meta(torch.zeros(8))
    assert (one.storage, other.storage) == (0, 0)
    assert (other.lo, other.hi) == (16, 32)
    assert not one.overlaps(other)
    assert door.meta(base[::2]).overlaps(other)
    assert elsewhere.storage == 1


def test_time_outs_are_shortened_never_lengthened():
    assert Door(limit=2).shortened(timedelta(seconds=9)) == timedelta(seconds=2)
    assert Door(limit=2).shortened(timedelta(seconds=1)) == timedelta(seconds=1)
    assert Door(limit=2).shortened(None) == timedelta(seconds=2)
    assert Door().shortened(None) is None
