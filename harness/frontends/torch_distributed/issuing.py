"""What a call of a process group asks for, before it is issued: tensors, parameters, entry checks.

The checks are those that gloo makes at the call: numbers and sizes of tensors that cannot be right
whatever the other ranks pass. Source: c10d's ProcessGroupGloo, torch 2.13.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import _getframe
from types import CodeType, FrameType
from typing import Any

import torch
from torch.distributed import distributed_c10d as c10d
from torch.distributed.algorithms import join
from torch.multiprocessing.reductions import StorageWeakRef

from harness.fabric.frames import is_library
from harness.frontends.torch_distributed.calls import ANY, FUNCTIONAL, TensorMeta
from harness.frontends.torch_distributed.names import PLAIN, names_of
from harness.frontends.torch_distributed.place import Place

Tensors = Sequence[torch.Tensor]
# Functions of torch that make parts of something larger; those of Join drop their handles.
_TORCHS = (c10d.__file__, join.__file__, torch.nn.parallel.distributed.__file__)
_FUNCTIONAL = str(Path(c10d.__file__).with_name("_functional_collectives.py"))
_OBJECTS = frozenset((
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list", "notify_join_context",
    "_check_global_requires_backward_grad_sync",
))
BESIDE_MAX = 32  # tensors at hand that a call keeps
_weak: Any = StorageWeakRef  # untyped


@dataclass(frozen=True, slots=True)
class Request:
    """A call before it is made. given, taken: the tensors as the program passes them. reads, fills: the
    same cut into one tensor a rank, where they differ. root, peer: ranks of the group.
    what: a note, of a split its parts."""

    kind: str
    given: Tensors
    taken: Tensors
    op: str = ""
    root: int = ANY
    peer: int = ANY
    tag: int = 0
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    async_op: bool = False
    what: str = ""
    reads: Tensors | None = None
    fills: Tensors | None = None

    @property
    def inputs(self) -> Tensors:
        """The tensors that it reads."""
        return self.given if self.reads is None else self.reads

    @property
    def outputs(self) -> Tensors:
        """The tensors that it fills."""
        return self.taken if self.fills is None else self.fills

    def refused(self, size: int) -> str:
        """Why it cannot be in a group of `size`; "" if it can."""
        for tensor in (*self.given, *self.taken):
            if tensor.device.type != "cpu":
                return f"a tensor on {tensor.device}; a simulated world has CPU tensors only"
            if tensor.layout == torch.sparse_coo and self.kind == "all_reduce":
                if self.op != "sum":
                    return "all_reduce of sparse tensors only works with ReduceOp.SUM"
                continue
            if tensor.layout != torch.strided:
                return "a sparse tensor; only all_reduce takes one, of torch.sparse_coo"
            if not _lies_well(self.kind, tensor):
                return (
                    f"a tensor of strides {tensor.stride()}: gloo takes its memory as it lies, NCCL "
                    "refuses it; pass .contiguous()"
                )
        for rank, name in ((self.root, "root"), (self.peer, "peer")):
            if rank != ANY and not 0 <= rank < size:
                return f"{name} {rank} is outside the group's ranks 0..{size - 1}"
        return _SIZES[self.kind](self, size) if self.kind in _SIZES else ""


_AS_IT_LIES = frozenset(("all_reduce", "broadcast", "reduce", "scatter"))
_CONTIGUOUS = frozenset(("send", "recv", "all_to_all_single"))


def _lies_well(kind: str, tensor: torch.Tensor) -> bool:
    """Whether gloo would move the elements of a tensor, and not what lies between them (measured)."""
    if tensor.is_contiguous() or kind not in _AS_IT_LIES | _CONTIGUOUS:
        return True
    return kind in _AS_IT_LIES and bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _gathers(request: Request, size: int) -> str:
    if request.taken and len(request.taken) != size:
        return f"{len(request.taken)} output tensors for {size} ranks"
    return _alike(request.taken, request.given[0]) if request.taken else ""


def _scatters(request: Request, size: int) -> str:
    if request.given and len(request.given) != size:
        return f"{len(request.given)} input tensors for {size} ranks"
    return _alike(request.given, request.taken[0]) if request.given else ""


def _exchanges(request: Request, size: int) -> str:
    if len(request.given) != size or len(request.taken) != size:
        return f"{len(request.given)} input and {len(request.taken)} output tensors for {size} ranks"
    return ""


def _alike(tensors: Tensors, pattern: torch.Tensor) -> str:
    for index, tensor in enumerate(tensors):
        if tensor.numel() != pattern.numel():
            return (
                f"invalid tensor size at index {index} (expected {tuple(pattern.shape)}, "
                f"got {tuple(tensor.shape)})"
            )
    return ""


def _into_one(request: Request, size: int) -> str:
    due, found = request.given[0].numel() * size, request.taken[0].numel()
    return "" if due == found else f"an output of {found} elements; {due} are due"


def _from_one(request: Request, size: int) -> str:
    due, found = request.taken[0].numel() * size, request.given[0].numel()
    return "" if due == found else f"an input of {found} elements; {due} are due"


def _cut(request: Request, size: int) -> str:
    for tensor, sizes, side in (
        (request.given[0], request.splits[0], "input"), (request.taken[0], request.splits[1], "output"),
    ):
        rows = tensor.shape[0] if tensor.dim() else 0
        if sizes and (len(sizes) != size or sum(sizes) != rows):
            return f"{side} splits {list(sizes)} for {size} ranks and {rows} rows"
        if not sizes and rows % size:
            return f"{rows} {side} rows do not divide evenly among {size} ranks"
    return ""


_SIZES = {
    "all_gather": _gathers, "gather": _gathers, "scatter": _scatters, "reduce_scatter": _scatters,
    "all_to_all": _exchanges, "all_gather_into_tensor": _into_one,
    "reduce_scatter_tensor": _from_one, "all_to_all_single": _cut,
}


def metas(place: Place, tensors: Tensors) -> tuple[TensorMeta, ...]:
    """What the record keeps of tensors."""
    return tuple(meta(place, tensor) for tensor in tensors)


def meta(place: Place, tensor: torch.Tensor) -> TensorMeta:
    """What the record keeps of a tensor."""
    if tensor.layout != torch.strided:
        dtype = f"{str(tensor.dtype)[6:]} sparse"
        return TensorMeta(tuple(tensor.shape), dtype, (), place.next_number(), 0, 0)
    size = tensor.element_size()
    shape, strides = tuple(tensor.shape), tensor.stride()
    lo = int(tensor.storage_offset()) * size
    extent = 1 + sum((length - 1) * int(stride) for length, stride in zip(shape, strides, strict=True))
    hi = lo + (extent * size if tensor.numel() else 0)
    return TensorMeta(shape, str(tensor.dtype)[6:], strides, storage_of(place, tensor), lo, hi)


def storage_of(place: Place, tensor: torch.Tensor) -> int:
    """The number of a dense tensor's memory."""
    storage = tensor.untyped_storage()
    known = place.storages.get(storage._cdata)
    if known is None or known[0].expired():
        known = place.storages[storage._cdata] = _weak(storage), place.next_number()
    return known[1]


def at_hand(place: Place, frame: FrameType | None, request: Request) -> dict[str, Any]:
    """Of a Call: the variables of the user's frames that hold the first tensor, how often that was
    written, and other tensors like it."""
    tensors = request.given or request.taken
    if not tensors:
        return {}
    tensor, others = tensors[0], dict[int, torch.Tensor]()
    names = names_of(tensor, frame, _is_user, others)
    if type(tensor) not in PLAIN or tensor.layout != torch.strided or tensor.is_inference():
        return {"names": names}
    mine = storage_of(place, tensor)
    beside = tuple(
        (storage, other._version) for other in itertools.islice(others.values(), BESIDE_MAX)
        if not other.is_inference() and (storage := storage_of(place, other)) != mine
    )
    return {"names": names, "version": tensor._version, "beside": beside}


def _is_user(code: CodeType) -> bool:
    return not is_library(code.co_filename)


def pieces(flat: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A flat tensor as one piece a rank."""
    line = flat.view(-1)
    each = line.numel() // count
    return [line[index * each : (index + 1) * each] for index in range(count)]


def rows(tensor: torch.Tensor, sizes: Sequence[int], count: int) -> list[torch.Tensor]:
    """The rows of a tensor by rank: as many as `sizes` says, or evenly."""
    whole = tensor.shape[0] if tensor.dim() else 0
    wanted = list(sizes or ()) or [whole // count] * count
    if sum(wanted) > whole:
        return []  # refused (issuing.py)
    ends = list(itertools.accumulate(wanted))
    return [tensor[end - size : end] for end, size in zip(ends, wanted, strict=True)]


def _frames(frame: FrameType | None, most: int = 12) -> list[str]:
    names: list[str] = []
    while frame is not None and len(names) < most:
        if frame.f_code.co_filename in _TORCHS:
            names.append(frame.f_code.co_name)
        elif frame.f_code.co_filename == _FUNCTIONAL:
            names.append(FUNCTIONAL)
        frame = frame.f_back
    return names


def called_by(name: str) -> bool:
    """Whether a function of torch.distributed of that name is calling: it waits at once."""
    return name in _frames(_getframe(2))


def object_call() -> str:
    """The object collective or the functional one that makes this call; "" if none does."""
    return next((name for name in _frames(_getframe(2)) if name in _OBJECTS or name == FUNCTIONAL), "")
