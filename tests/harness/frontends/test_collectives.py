"""Every collective gives what a real gloo world gives, in every dtype that gloo takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from harness.frontends.torch_distributed.collectives import OPS, reduced, refusal, results
from harness.supervise import supervised

HERE = "test_collectives"
SOON = 60.0  # seconds that no world comes near
NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
COMPLEX = ("complex64", "complex128")
DTYPES = (*NUMBERS, *COMPLEX, "bool")
SHAPES = ((4,), (3, 2), (), (0,), "strided")
ARITHMETIC = ("sum", "product", "min", "max")
BITS = ("band", "bor", "bxor")


def _cases():
    for dtype in DTYPES:
        ops = ARITHMETIC if dtype in NUMBERS else ("sum", "avg") if dtype in COMPLEX else ("max", "min")
        if "int" in dtype or dtype == "bool":
            ops += BITS
        elif dtype in NUMBERS:
            ops += ("avg",)
        for op in ops:
            yield "all_reduce", dtype, op, (4,)
        for kind in ("reduce", "reduce_scatter", "reduce_scatter_tensor"):
            yield kind, dtype, ops[0], (4,)
        for kind in ("broadcast", "all_gather", "all_gather_into_tensor", "scatter", "all_to_all",
                     "all_to_all_single", "gather"):
            if kind != "gather" or dtype not in COMPLEX:
                yield kind, dtype, "", (4,)
    for shape in SHAPES[1:]:
        for kind, op in (("all_reduce", "sum"), ("reduce", "max"), ("broadcast", ""),
                         ("all_gather", ""), ("gather", ""), ("scatter", ""),
                         ("reduce_scatter", "sum"), ("all_to_all", "")):
            yield kind, "float32", op, shape


CASES = tuple(_cases())


def tensor(dtype, shape, seed):
    """Small whole numbers, of which every sum and product is exact in every dtype and every order."""
    strided = shape == "strided"
    extents = (2, 3) if strided else shape
    count = 1
    for extent in extents:
        count *= extent
    values = torch.arange(count) + seed
    values = values % 2 == 0 if dtype == "bool" else values % 3 + 1
    made = values.reshape(extents).to(getattr(torch, dtype))
    return made.t() if strided else made


def splits(rank, size):
    """Uneven: rank r sends (r + p) % 3 rows to rank p."""
    return [(rank + p) % 3 for p in range(size)], [(p + rank) % 3 for p in range(size)]


def given(case, rank, size):
    """What the rank gives: its list of tensors."""
    kind, dtype, _, shape = case
    if kind in ("scatter", "reduce_scatter", "all_to_all"):
        if kind == "scatter" and rank != 0:
            return []
        return [tensor(dtype, shape, rank + 5 * p) for p in range(size)]
    if kind == "reduce_scatter_tensor":
        return [torch.cat([tensor(dtype, shape, rank + 5 * p) for p in range(size)])]
    if kind == "all_to_all_single":
        return [tensor(dtype, (sum(splits(rank, size)[0]),), rank)]
    return [tensor(dtype, shape, rank)]


def _empty(case, rank, count):
    return [torch.zeros_like(tensor(case[1], case[3], 0)) for _ in range(count)]


def _done(case, rank, size):
    kind, dtype, op, _ = case
    mine = given(case, rank, size)
    with_op = {"op": getattr(dist.ReduceOp, op.upper())} if op else {}
    call = getattr(dist, kind)
    if kind in ("all_reduce", "reduce", "broadcast"):
        call(mine[0], *(() if kind == "all_reduce" else (0,)), **with_op)
        return mine if kind == "all_reduce" or (kind == "reduce") == (rank == 0) else None
    if kind == "gather":
        out = _empty(case, rank, size) if rank == 0 else None
        call(mine[0], out, 0)
        return out
    if kind == "scatter":
        (out,) = _empty(case, rank, 1)
        call(out, mine or None, 0)
        return [out]
    if kind in ("all_gather", "all_to_all"):
        out = _empty(case, rank, size)
        call(out, mine if kind == "all_to_all" else mine[0])
        return out
    if kind in ("reduce_scatter", "reduce_scatter_tensor"):
        (out,) = _empty(case, rank, 1)
        call(out, mine if kind == "reduce_scatter" else mine[0], **with_op)
        return [out]
    if kind == "all_gather_into_tensor":
        out = torch.cat(_empty(case, rank, size))
        call(out, mine[0])
        return [out]
    into, outof = splits(rank, size)
    out = torch.zeros(sum(outof), dtype=getattr(torch, dtype))
    call(out, mine[0], outof, into)
    return [out]


def in_a_world(value, fds):
    """The entry of a supervised process: all cases, then what came of them into a file."""
    rank, size, folder = value
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.save([_done(case, rank, size) for case in CASES], f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_as_gloo_does_it(size, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    world = [
        supervised(f"{HERE}:in_a_world", [rank, size, str(tmp_path)]) for rank in range(size)
    ]
    for child in world:
        ending = child.ended(within=SOON)
        assert ending is not None
        assert ending.code == 0, ending.log
        child.close()
    real = [torch.load(tmp_path / f"{rank}.pt") for rank in range(size)]
    for number, case in enumerate(CASES):
        kind, _, op, _ = case
        ours = results(
            kind, [given(case, rank, size) for rank in range(size)], op=op, root=0,
            splits=[splits(rank, size) for rank in range(size)] if kind == "all_to_all_single" else (),
        )
        for rank in range(size):
            theirs = real[rank][number]
            assert (ours[rank] is None) == (theirs is None), (case, rank)
            for mine, their in zip(ours[rank] or (), theirs or (), strict=True):
                assert mine.dtype == their.dtype, case
                assert mine.shape == their.shape, case
                assert torch.equal(mine, their), (case, rank, mine, their)


def test_reductions_go_in_ascending_rank():
    parts = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    assert reduced("sum", parts).item() == 0.0  # 1e8 + 1 is 1e8 in float32
    assert reduced("sum", [parts[0], parts[2], parts[1]]).item() == 1.0
    assert parts[0].item() == 1e8
    both = results("all_reduce", [[parts[0]], [parts[1]]], op="sum")
    assert both[0][0].data_ptr() != both[1][0].data_ptr()


@pytest.mark.parametrize(
    ("kind", "dtype", "op", "why"),
    [
        ("all_reduce", torch.float32, "premul_sum", "PREMUL_SUM with Gloo"),
        ("all_reduce", torch.float32, "band", "Cannot use ReduceOp.BAND with non-integral dtype"),
        ("all_reduce", torch.int16, "sum", "Invalid scalar type"),
        ("broadcast", torch.float8_e4m3fn, "", "Invalid scalar type"),
        ("reduce", torch.complex64, "max", "ReduceOp.MAX on complex tensors"),
        ("gather", torch.complex64, "", "Invalid scalar type"),
        ("all_reduce", torch.int32, "avg", "AVG of int32"),
    ],
)
def test_what_gloo_refuses_is_refused(kind, dtype, op, why):
    with pytest.raises(RuntimeError, match=why):
        results(kind, [[torch.zeros(2).to(dtype)]] * 2, op=op, root=0)


def test_what_is_never_refused():
    assert refusal("send", torch.float8_e4m3fn) == ""
    assert refusal("all_reduce", torch.complex64, "avg") == ""
    assert [refusal("all_reduce", torch.bool, op) for op in OPS if op not in ("avg", "premul_sum")] == (
        [""] * 7
    )
    assert results("barrier", [[], []]) == [[], []]


def test_even_splits_and_flat_forms():
    a, b = torch.arange(4.0).reshape(4, 1), torch.arange(4.0, 8.0).reshape(4, 1)
    first, second = results("all_to_all_single", [[a], [b]])
    assert first[0].tolist() == [[0.0], [1.0], [4.0], [5.0]]
    assert second[0].tolist() == [[2.0], [3.0], [6.0], [7.0]]
    flat = results("all_gather_into_tensor", [[a], [b]])
    assert flat[1][0].tolist() == list(map(float, range(8)))
    nothing = torch.zeros(0)
    assert results("reduce_scatter_tensor", [[nothing], [nothing]], op="sum")[1][0].shape == (0,)
