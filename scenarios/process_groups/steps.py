"""A torch.distributed script: the calls that its argument names, and a digest of what each has given.

    steps.py '{"calls": ["all_reduce"], "dtype": "float32", "numel": 4, "deferred": false,
               "mistake": "", "at": 0, "victim": 0}'

With `deferred` all calls are issued before the first is waited for. `mistake`: what the rank `victim`
does wrong in call number `at`. Values are small integers, so that any order of summing gives the same
bits. """

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import torch
import torch.distributed as dist


def values(rank: int, call: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """What a rank gives in a call: 0 to 6."""
    return ((torch.arange(numel) + 3 * rank + 5 * call) % 7).to(dtype)


def begin(
    kind: str, mine: torch.Tensor, op: Any, root: int
) -> tuple[list[dist.Work | None], list[torch.Tensor]]:
    """Issue one call; its handles, and the tensors that will hold its results."""
    size, rank = dist.get_world_size(), dist.get_rank()
    pieces = [torch.zeros_like(mine) for _ in range(size)]
    if kind == "all_reduce":
        return [dist.all_reduce(mine, op, async_op=True)], [mine]
    if kind == "broadcast":
        return [dist.broadcast(mine, root, async_op=True)], [mine]
    if kind == "all_gather":
        return [dist.all_gather(pieces, mine, async_op=True)], pieces
    if kind == "gather":
        gathered = pieces if rank == root else None
        return [dist.gather(mine, gathered, root, async_op=True)], gathered or []
    if kind == "reduce_scatter":
        given = [mine + one for one in range(size)]
        return [dist.reduce_scatter(pieces[0], given, op, async_op=True)], pieces[:1]
    if kind == "all_to_all":
        return [dist.all_to_all(pieces, [mine + one for one in range(size)], async_op=True)], pieces
    if kind == "send":  # a ring of messages
        sent = dist.isend(mine, (rank + 1) % size)
        return [sent, dist.irecv(pieces[0], (rank - 1) % size)], pieces[:1]
    return [dist.barrier(async_op=True)], []


def digest(tensors: list[torch.Tensor]) -> str:
    """Of their bytes."""
    told = hashlib.sha256()
    for tensor in tensors:
        if tensor.numel():
            told.update(tensor.view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:12]


def main(told: dict[str, Any]) -> None:
    """Make the calls, in order."""
    dist.init_process_group("gloo")
    open_calls = []
    for number, kind in enumerate(told["calls"]):
        numel, dtype, op, root = told["numel"], getattr(torch, told["dtype"]), dist.ReduceOp.SUM, 0
        mistake = told["mistake"] if (dist.get_rank(), number) == (told["victim"], told["at"]) else ""
        if mistake == "other_size":
            numel += 1
        elif mistake == "other_dtype":
            dtype = torch.int32 if dtype != torch.int32 else torch.float32
        elif mistake == "other_op":
            op = dist.ReduceOp.MAX
        elif mistake == "other_root":
            root = 1
        elif mistake == "other_kind":
            kind = "broadcast" if kind != "broadcast" else "all_reduce"
        handles, results = begin(kind, values(dist.get_rank(), number, numel, dtype), op, root)
        open_calls.append((kind, handles, results))
        if not told["deferred"]:
            finish(*open_calls.pop())
    for call in open_calls:
        finish(*call)
    dist.destroy_process_group()


def finish(kind: str, handles: list[dist.Work | None], results: list[torch.Tensor]) -> None:
    """Wait for a call and print what it gave."""
    for handle in handles:
        if handle is not None:
            handle.wait()
    sys.stdout.write(f"{kind} {digest(results)}\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
