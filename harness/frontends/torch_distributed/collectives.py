"""What every collective of torch.distributed gives, in plain torch.

Reductions go in ascending group rank, one operand after the other, in the tensor's own dtype: the
result is the same bits on every run and every rank. gloo and NCCL promise no order, so their floats may
differ from these in the last bits. AVG is SUM, then a division, as gloo does it.

The dtypes and reduce operations that are refused, and the words, are gloo's (torch 2.13). Not modelled:
bools that are neither 0 nor 1 (gloo's SUM of bools adds bytes); what reduce leaves in the tensors of
ranks that are not the root (here: what was there).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from harness.frontends.torch_distributed.calls import FAMILY, REDUCING

Tensors = Sequence[torch.Tensor]

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
    torch.int64, torch.bool, torch.complex64, torch.complex128,
)
_ARITHMETIC: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum,
    "max": torch.maximum, "band": torch.bitwise_and, "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
_LOGICAL: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.logical_or, "max": torch.logical_or, "bor": torch.logical_or,
    "product": torch.logical_and, "min": torch.logical_and, "band": torch.logical_and,
    "bxor": torch.logical_xor,
}
OPS = (*_ARITHMETIC, "premul_sum")


def refusal(kind: str, dtype: torch.dtype, op: str = "") -> str:
    """Why gloo refuses this dtype or this reduce operation (a RuntimeError's text); "" if it does not.

    Messages may have any dtype.
    """
    if kind in ("send", "recv", "barrier", "monitored_barrier"):
        return ""
    if dtype not in DTYPES or (kind == "gather" and dtype.is_complex):
        return "Invalid scalar type"
    if kind not in REDUCING:
        return ""
    if op == "premul_sum":
        return "Cannot use ReduceOp.PREMUL_SUM with Gloo"
    if dtype.is_complex and op not in ("sum", "avg"):
        return f"{kind} does not support ReduceOp.{op.upper()} on complex tensors"
    if dtype.is_floating_point and op in ("band", "bor", "bxor"):
        return f"Cannot use ReduceOp.{op.upper()} with non-integral dtype"
    if op == "avg" and not (dtype.is_floating_point or dtype.is_complex):
        return f"ReduceOp.AVG of {str(dtype).removeprefix('torch.')}: a mean is no integer"
    return ""


def reduced(op: str, operands: Tensors) -> torch.Tensor:
    """All operands (equal shapes and dtypes) combined in their order, in a new contiguous tensor."""
    steps = _LOGICAL if operands[0].dtype == torch.bool else _ARITHMETIC
    total = _copy(operands[0])
    for operand in operands[1:]:
        total = steps[op](total, operand)
    return total.div_(len(operands)) if op == "avg" else total


def results(
    kind: str, inputs: Sequence[Tensors], *, op: str = "", root: int = -1,
    splits: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
) -> list[list[torch.Tensor] | None]:
    """The outputs of each rank, new tensors; None where the rank's output stays as it is (that of the
    root of a broadcast, those of the others of a reduce or gather).

    inputs: by group rank, the tensors that rank gives (all_reduce, reduce, broadcast: its tensors, of
    which broadcast reads the root's only; scatter: the root's, one a rank; reduce_scatter, all_to_all:
    one a rank; all other kinds: one). root: a group rank. splits: by group rank, (input sizes,
    output sizes) in rows, empty for even; of all_to_all_single only.
    Flat results (…_into_tensor, …_tensor) have one dimension: the caller gives them their shape.
    Raises RuntimeError with gloo's words for a dtype or operation that gloo refuses. That the calls
    agree with each other is the caller's to check (agreement.py).
    """
    given = next((tensors[0] for tensors in inputs if tensors), None)
    if given is None:
        return [[] for _ in inputs]
    if why := refusal(kind, given.dtype, op):
        raise RuntimeError(why)
    if kind == "all_to_all_single":
        return _exchanged(inputs, splits)
    found = _GIVERS[FAMILY.get(kind, kind)](_as_lists(kind, inputs), op, root)
    if kind == "all_gather_into_tensor":
        return [[torch.cat([t.reshape(-1) for t in each or ()])] for each in found]
    return found


def _as_lists(kind: str, inputs: Sequence[Tensors]) -> Sequence[Tensors]:
    """One flat tensor a rank, cut into one piece for each rank, where the list form has pieces."""
    if kind != "reduce_scatter_tensor":
        return inputs
    return [flat[0].reshape(-1).chunk(len(inputs)) if flat[0].numel() else
            [flat[0].reshape(-1)] * len(inputs) for flat in inputs]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_sparse:
        return tensor.coalesce().clone()
    return tensor.clone(memory_format=torch.contiguous_format)


def _all_reduce(inputs: Sequence[Tensors], op: str, _: int) -> list[list[torch.Tensor] | None]:
    totals = [reduced(op, operands) for operands in zip(*inputs, strict=True)]
    return [[_copy(total) for total in totals] for _ in inputs]


def _reduce(inputs: Sequence[Tensors], op: str, root: int) -> list[list[torch.Tensor] | None]:
    totals = [reduced(op, operands) for operands in zip(*inputs, strict=True)]
    return [totals if rank == root else None for rank in range(len(inputs))]


def _broadcast(inputs: Sequence[Tensors], _: str, root: int) -> list[list[torch.Tensor] | None]:
    return [
        None if rank == root else [_copy(tensor) for tensor in inputs[root]]
        for rank in range(len(inputs))
    ]


def _all_gather(inputs: Sequence[Tensors], _: str, __: int) -> list[list[torch.Tensor] | None]:
    return [[_copy(tensors[0]) for tensors in inputs] for _ in inputs]


def _gather(inputs: Sequence[Tensors], _: str, root: int) -> list[list[torch.Tensor] | None]:
    return [
        [_copy(tensors[0]) for tensors in inputs] if rank == root else None
        for rank in range(len(inputs))
    ]


def _scatter(inputs: Sequence[Tensors], _: str, root: int) -> list[list[torch.Tensor] | None]:
    return [[_copy(inputs[root][rank])] for rank in range(len(inputs))]


def _reduce_scatter(
    inputs: Sequence[Tensors], op: str, _: int
) -> list[list[torch.Tensor] | None]:
    return [[reduced(op, [given[rank] for given in inputs])] for rank in range(len(inputs))]


def _all_to_all(inputs: Sequence[Tensors], _: str, __: int) -> list[list[torch.Tensor] | None]:
    return [[_copy(given[rank]) for given in inputs] for rank in range(len(inputs))]


def _exchanged(
    inputs: Sequence[Tensors], splits: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[list[torch.Tensor] | None]:
    """all_to_all_single: each rank's rows, cut by its input sizes and put together by rank."""
    pieces = []
    for rank, (flat, *_) in enumerate(inputs):
        sizes = list(splits[rank][0]) if splits else []
        even = [len(flat) // len(inputs)] * len(inputs)
        pieces.append(torch.split(flat, sizes or even))
    return [[torch.cat([given[rank] for given in pieces])] for rank in range(len(inputs))]


_GIVERS: dict[str, Callable[[Sequence[Tensors], str, int], list[list[torch.Tensor] | None]]] = {
    "all_reduce": _all_reduce, "reduce": _reduce, "broadcast": _broadcast, "all_gather": _all_gather,
    "gather": _gather, "scatter": _scatter, "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
