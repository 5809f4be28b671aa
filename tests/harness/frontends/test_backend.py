"""Every collective and message of an unmodified program: the right data, however it is scheduled."""

from __future__ import annotations

import itertools

import pytest

from harness.plan import Hold

EVERYTHING = """
x = torch.arange(4.) + rank
lists = [torch.empty(4) for _ in range(size)]
dist.all_gather(lists, x)
assert all(torch.equal(lists[i], torch.arange(4.) + i) for i in range(size))
flat = torch.empty(4 * size)
dist.all_gather_into_tensor(flat, x)
assert torch.equal(flat, torch.cat(lists))
stacked = torch.empty(size, 4)
dist.all_gather_into_tensor(stacked, x)
assert torch.equal(stacked, torch.stack(lists))
b = x.clone()
dist.broadcast(b, size - 1)
assert torch.equal(b, lists[-1])
b = x.clone()
dist.reduce(b, 0)
assert torch.equal(b, sum(lists) if rank == 0 else x)
piece = torch.empty(2)
dist.reduce_scatter_tensor(piece, torch.arange(2. * size) + rank)
assert torch.equal(piece, torch.arange(2. * size)[2 * rank:2 * rank + 2] * size + sum(range(size)))
dist.reduce_scatter(piece, [torch.full((2,), float(i)) for i in range(size)])
assert piece.tolist() == [rank * size] * 2
mine = torch.empty(3)
dist.scatter(mine, [torch.full((3,), float(i)) for i in range(size)] if rank == 0 else None, src=0)
assert mine.tolist() == [rank] * 3
gathered = [torch.empty(4) for _ in range(size)] if rank == 0 else None
dist.gather(x, gathered, dst=0)
assert rank or torch.equal(torch.cat(gathered), torch.cat(lists))
row = torch.empty(size)
dist.all_to_all_single(row, torch.arange(float(size)) + 10 * rank)
assert torch.equal(row, torch.arange(float(size)) * 10 + rank)
sizes = [i + 1 for i in range(size)]
row = torch.empty((rank + 1) * size)
dist.all_to_all_single(row, torch.full((sum(sizes),), float(rank)), [rank + 1] * size, sizes)
assert torch.equal(row, torch.arange(float(size)).repeat_interleave(rank + 1))
outs = [torch.empty(1) for _ in range(size)]
dist.all_to_all(outs, [torch.tensor([float(10 * rank + i)]) for i in range(size)])
assert [int(t) for t in outs] == [10 * i + rank for i in range(size)]
dist.barrier()
dist.monitored_barrier(timeout=timedelta(seconds=3))
"""
MESSAGES = """
if size > 1:
    right, left = (rank + 1) % size, (rank - 1) % size
    t = torch.empty(2)
    ops = [dist.P2POp(dist.isend, torch.full((2,), float(rank)), right), dist.P2POp(dist.irecv, t, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert t.tolist() == [left] * 2
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            t = torch.empty(1)
            source = dist.recv(t)
            assert int(t) == source
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0)
    if rank == 0:
        dist.send(torch.ones(1), 1, tag=7)
        dist.send(torch.zeros(1), 1, tag=8)
    if rank == 1:
        one, zero = torch.empty(1), torch.empty(1)
        late = dist.irecv(zero, 0, tag=8)
        dist.recv(one, 0, tag=7)
        late.wait()
        assert (one.item(), zero.item()) == (1, 0)
"""
OBJECTS = """
everybody = [None] * size
dist.all_gather_object(everybody, {"rank": rank, "pad": "x" * rank})
assert [one["rank"] for one in everybody] == list(range(size))
config = [{"lr": 1}] if rank == 0 else [None]
dist.broadcast_object_list(config, 0)
assert config == [{"lr": 1}]
own = [None]
dist.scatter_object_list(own, [str(i) for i in range(size)] if rank == 0 else None, 0)
assert own == [str(rank)]
told = [None] * size if rank == 0 else None
dist.gather_object(rank, told, 0)
assert rank or told == list(range(size))
if size > 1 and rank == 0:
    dist.send_object_list(["hi", 3], 1)
if rank == 1:
    got = [None, None]
    dist.recv_object_list(got, 0)
    assert got == ["hi", 3]
"""
GROUPS = """
pair = dist.new_group([0, 1])
all_again = dist.new_group(list(range(size)))
y = torch.ones(1)
dist.all_reduce(y, group=all_again)
assert y.item() == size
if rank < 2:
    dist.all_reduce(y, group=pair)
    assert y.item() == 2 * size
    assert dist.get_rank(pair) == rank and dist.get_world_size(pair) == 2
else:
    assert pair == dist.GroupMember.NON_GROUP_MEMBER
dist.destroy_process_group(all_again)
"""
ASYNC = """
handles = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
for handle in reversed(handles):
    handle.wait()
assert all(handle.is_completed() and handle.is_success() for handle in handles)
polled = dist.all_reduce(torch.ones(3), async_op=True)
while not polled.is_completed():
    pass
assert polled.result()[0].tolist() == [size] * 3
future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
assert future.then(lambda f: f.value()[0][0]).wait() == size
assert future.done()
assert future.wait()[0][0] == size
with dist._coalescing_manager():
    one, two = torch.ones(2), torch.ones(3)
    dist.all_reduce(one)
    dist.all_reduce(two)
assert one[0] == size and two[0] == size
"""
DTYPES = """
for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int64):
    t = torch.ones(3, dtype=dtype)
    dist.all_reduce(t)
    assert t.tolist() == [size] * 3
c = torch.ones(2, dtype=torch.complex64)
dist.all_reduce(c)
assert c[0] == size
flags = torch.tensor([rank == 0, False])
dist.all_reduce(flags, op=dist.ReduceOp.MAX)
assert flags.tolist() == [True, False]
dist.all_reduce(torch.empty(0))
scalar = torch.tensor(2.0)
dist.all_reduce(scalar)
assert scalar == 2 * size
strided = torch.ones(4, 2).t()
dist.all_reduce(strided)
assert strided.eq(size).all()
with torch.inference_mode():
    t = torch.ones(3)
    dist.all_reduce(t)
assert t[0] == size
weight = torch.nn.Parameter(torch.ones(2))
with torch.no_grad():
    dist.all_reduce(weight)
assert weight[0] == size
mean = torch.full((2,), float(rank))
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert mean[0] == (size - 1) / 2
"""
FUNCTIONAL = """
import torch.distributed._functional_collectives as fc
from torch.distributed.device_mesh import init_device_mesh
world = dist.group.WORLD
assert fc.all_reduce(torch.ones(3), "sum", world)[0] == size
assert fc.all_gather_tensor(torch.ones(3) * rank, 0, world)[-1] == size - 1
assert fc.reduce_scatter_tensor(torch.ones(2 * size), "sum", 0, world).tolist() == [size] * 2
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
v = torch.full((1,), float(rank))
dist.all_reduce(v, group=mesh.get_group("tp"))
assert int(v) == (1 if rank < 2 else 5)
"""
PROGRAMS = {
    "collectives": EVERYTHING, "messages": MESSAGES, "objects": OBJECTS, "dtypes": DTYPES,
    "handles": ASYNC,
}


def clean(outcome):
    assert [finding.message for finding in outcome.findings] == []
    assert outcome.notes == ()
    return outcome.run


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_get_the_right_data(script, name, ranks):
    clean(script(PROGRAMS[name], ranks))


@pytest.mark.parametrize("text", [GROUPS, FUNCTIONAL], ids=["groups", "functional"])
def test_programs_of_four(script, text):
    clean(script(text, 4))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_data_are_right_when_completions_come_late(script, name):
    late = [Hold(number) for number in range(0, 400, 3)]
    run = clean(script(PROGRAMS[name], 3, *late))
    assert run.deviations_applied >= 5


def test_each_rank_completes_by_an_event_of_its_own(script):
    run = clean(script("dist.all_reduce(torch.ones(2), async_op=True).wait()", 3))
    calls = [event for event in run.events if event.kind == "all_reduce"]
    done = {event.number for event in run.events if event.kind == "complete"}
    assert len(calls) == 3
    assert {event.number for event in calls} <= done


def test_ddp_trains_and_keeps_the_ranks_alike(script):
    clean(script("""
        from torch.nn.parallel import DistributedDataParallel
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        ddp = DistributedDataParallel(net, bucket_cap_mb=0.0001)
        sgd = torch.optim.SGD(ddp.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for _ in range(2):
            sgd.zero_grad()
            ddp(torch.randn(4, 8)).pow(2).mean().backward()
            sgd.step()
        weights = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
        all_weights = [torch.empty_like(weights) for _ in range(size)]
        dist.all_gather(all_weights, weights)
        assert all(torch.equal(one, weights) for one in all_weights)
    """))


def test_gradient_buckets_of_ddp_are_in_flight_together(script):
    run = clean(script("""
        from torch.nn.parallel import DistributedDataParallel
        net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Linear(64, 64))
        ddp = DistributedDataParallel(net, bucket_cap_mb=0.0001)
        for _ in range(2):  # torch finds its buckets in the first step
            ddp(torch.ones(4, 8)).sum().backward()
    """, 2))
    kinds = [event.kind for event in run.events if event.owner == 0]
    assert any(one == two == "all_reduce" for one, two in itertools.pairwise(kinds))


def test_fully_sharded_step(script):
    clean(script("""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
        mesh = init_device_mesh("cpu", (size,))
        for layer in net:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        net(torch.ones(4, 8)).pow(2).mean().backward()
        assert all(p.grad is not None for p in net.parameters())
    """, 2))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("dist.all_gather([torch.empty(2)] * (size - 1), torch.empty(2))", "output tensors for"),
        ("dist.all_gather([torch.empty(3)] * size, torch.empty(2))", "invalid tensor size"),
        ("dist.all_gather_into_tensor(torch.empty(3), torch.empty(2))", "3 elements"),
        ("dist.all_to_all_single(torch.empty(5), torch.empty(5))", "do not divide evenly"),
        ("dist.all_to_all_single(torch.empty(4), torch.empty(4), [4, 4], [2, 2])", "output splits"),
        ("dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn))", "Invalid scalar type"),
        ("dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)", "BAND"),
        ("dist.all_reduce(torch.ones(2, device='meta'))", "a tensor on meta"),
        ("dist.group.WORLD.merge_remote_group(None)", "does not have this operation"),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(script, text, told):
    (found, *_) = script(f"def go():\n    {text}\ngo()", 2).findings
    assert found.checker == "exceptions"
    assert told in found.message
    assert "program.py:9 in go" in found.message


def test_a_destroyed_group_is_refused(script):
    (found, *_) = script("""
        group = dist.new_group([0, 1])
        dist.destroy_process_group()
        dist.all_reduce(torch.ones(1), group=group)
    """, 2).findings
    assert found.kind == "wrong_collective"
    assert "the group is destroyed" in found.message


def test_ranks_with_uneven_inputs_join(script):
    clean(script("""
        from torch.distributed.algorithms.join import Join
        from torch.nn.parallel import DistributedDataParallel
        ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
        with Join([ddp]):
            for _ in range(rank + 1):
                ddp(torch.ones(2, 4)).sum().backward()
    """, 3))
