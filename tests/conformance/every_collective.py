"""A torch.distributed script: every collective with many dtypes, sizes and reduce operations, each
compared bit for bit with plain torch. `every_collective.py SIZES [KIND…]`, sizes with commas between.

Values are 1 to 3 and differ between ranks, so that sums and products are exact in any order.
"""

import sys

import torch
import torch.distributed as dist

from harness.frontends.torch_distributed.collectives import DTYPES, OPS, refusal, results

REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
KINDS = (
    *REDUCING, "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all",
    "all_to_all_single", "send",
)


def given(kind, rank, size, numel, dtype, round):
    """What `rank` gives: a list of tensors, as `results` wants them."""

    def tensor(count, piece=0):
        values = (torch.arange(count) * 7 + 5 * rank + piece + round) % (2 if dtype == torch.bool else 3)
        return (values + (dtype != torch.bool)).to(dtype)

    if kind in ("scatter", "reduce_scatter", "all_to_all"):
        return [tensor(numel, piece) for piece in range(size)]
    if kind == "reduce_scatter_tensor":
        return [tensor(numel * size)]
    if kind == "all_to_all_single":
        return [tensor(sum(splits(rank, size, numel)[0]))]
    return [tensor(numel)]


def splits(rank, size, numel):
    """Uneven: what `rank` gives to each, and gets from each."""
    return [numel * (rank != to) + to for to in range(size)], [
        numel * (rank != come) + rank for come in range(size)
    ]


def called(kind, mine, rank, size, numel, op, root):
    """Make the call; this rank's outputs, None where `results` says nothing of them."""
    empty = [torch.full((numel,), 1, dtype=mine[0].dtype) for _ in range(size)]
    if kind == "all_reduce":
        dist.all_reduce(mine[0], op)
    elif kind == "broadcast":
        dist.broadcast(mine[0], root)
        return None if rank == root else mine
    elif kind == "reduce":
        dist.reduce(mine[0], root, op)
        return mine if rank == root else None
    elif kind == "all_gather":
        dist.all_gather(empty, mine[0])
        return empty
    elif kind == "all_gather_into_tensor":
        flat = torch.cat(empty)
        dist.all_gather_into_tensor(flat, mine[0])
        return [flat]
    elif kind == "gather":
        dist.gather(mine[0], empty if rank == root else None, root)
        return empty if rank == root else None
    elif kind == "scatter":
        dist.scatter(empty[0], mine if rank == root else None, root)
        return empty[:1]
    elif kind == "reduce_scatter":
        dist.reduce_scatter(empty[0], mine, op)
        return empty[:1]
    elif kind == "reduce_scatter_tensor":
        dist.reduce_scatter_tensor(empty[0], mine[0], op)
        return empty[:1]
    elif kind == "all_to_all":
        dist.all_to_all(empty, mine)
        return empty
    elif kind == "all_to_all_single":
        gives, gets = splits(rank, size, numel)
        flat = torch.ones(sum(gets), dtype=mine[0].dtype)
        dist.all_to_all_single(flat, mine[0], gets, gives)
        return [flat]
    else:  # a ring of messages
        work = dist.isend(mine[0], (rank + 1) % size)
        dist.recv(empty[0], (rank - 1) % size)
        work.wait()
        return empty[:1]
    return mine


def due(kind, everybody, rank, size, numel, op, root):
    """This rank's outputs by plain torch."""
    if kind == "send":
        return everybody[(rank - 1) % size]
    named = {"op": op, "root": root}
    if kind == "all_to_all_single":
        named = {"splits": [splits(one, size, numel) for one in range(size)]}
    return results(kind, everybody, **named)[rank]


def compare(kind, rank, size, numel, dtype, op, round):
    root = round % size
    everybody = [given(kind, one, size, numel, dtype, round) for one in range(size)]
    expected = due(kind, everybody, rank, size, numel, op, root)
    mine = [tensor.clone() for tensor in everybody[rank]]
    got = called(kind, mine, rank, size, numel, getattr(dist.ReduceOp, op.upper(), None), root)
    told = f"{kind} {op} of {numel} {dtype}, root {root}"
    if (got is None) != (expected is None) or len(got or ()) != len(expected or ()):
        raise AssertionError(f"rank {rank}: {told}: {got} for {expected}")
    for one, other in zip(got or (), expected or (), strict=True):
        other = other.reshape(one.shape)
        # A mean is a division, which backends round in their own way.
        alike = torch.allclose(one, other) if op == "avg" else torch.equal(one, other)
        if not alike or one.dtype != other.dtype:
            raise AssertionError(f"rank {rank}: {told}: got {one}, due {other}")


def main(sizes, kinds):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    made = 0
    for kind in kinds:
        for dtype in DTYPES:
            for op in OPS if kind in REDUCING else ("",):
                if refusal(kind, dtype, op) or (kind == "send" and size == 1):
                    continue
                for numel in sizes:
                    compare(kind, rank, size, numel, dtype, op, made)
                    made += 1
    dist.barrier()
    dist.monitored_barrier()
    sys.stdout.write(f"{made}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1].split(",")], sys.argv[2:] or KINDS)
