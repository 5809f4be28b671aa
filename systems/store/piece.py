"""One block's tensor as bytes: a view of host memory, or a staged copy of a device's.

A CPU tensor is read and written in place, without a copy. A CUDA tensor goes through a host copy;
work that was queued on the caller's stream before the call comes first. Refused at the call: what is
not dense, not contiguous, empty, or of the wrong length.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from typing import Any

import torch

from systems.store.errors import BadParameter

ID_BYTES = 16


class Piece:
    """A flat uint8 view `data` of one tensor, and the dtype it stands for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.data = tensor.detach().reshape(-1).view(torch.uint8)
        self.dtype = str(tensor.dtype).removeprefix("torch.")
        self.length = self.data.numel()
        self._staged: torch.Tensor | None = None
        self._after: Any = None
        if self.data.is_cuda:
            self._after = torch.cuda.current_stream(self.data.device).record_event()

    @property
    def address(self) -> int:
        """Where in host memory the bytes are, or will be: of a device's tensor its copy, page-aligned."""
        if self.data.is_cuda:
            return 0 if self._staged is None else self._staged.data_ptr()
        return self.data.data_ptr()

    def outgoing(self) -> memoryview:
        """The bytes to write, in host memory."""
        if not self.data.is_cuda:
            return _view(self.data)
        self._staged = page_aligned(self.length)
        self.copied_to(self._staged)
        return _view(self._staged)

    def incoming(self) -> memoryview:
        """Host memory to fill; then call `landed`."""
        if not self.data.is_cuda:
            return _view(self.data)
        self._staged = page_aligned(self.length)
        return _view(self._staged)

    def landed(self) -> None:
        """What was filled reaches the tensor."""
        if self._staged is not None:
            self.fill(self._staged)
            self._staged = None

    def fill(self, source: torch.Tensor) -> None:
        """Copy `source` (uint8, same length) into the tensor; there when this returns."""
        if self._after is not None:
            self._after.synchronize()
        self.data.copy_(source)
        if self.data.is_cuda:
            torch.cuda.current_stream(self.data.device).synchronize()

    def copied_to(self, target: torch.Tensor) -> None:
        """Copy the tensor into `target` (uint8, same length)."""
        if self._after is not None:
            self._after.synchronize()
        target.copy_(self.data)


def page_aligned(length: int) -> torch.Tensor:
    """`length` bytes of fresh memory that begins on a page."""
    return torch.frombuffer(mmap.mmap(-1, max(length, 1)), dtype=torch.uint8, count=length)


def view_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a host tensor of uint8; the caller keeps the tensor."""
    return _view(tensor)


def _view(data: torch.Tensor) -> memoryview:
    return memoryview((ctypes.c_ubyte * data.numel()).from_address(data.data_ptr())).cast("B")


def checked_ids(ids: Sequence[bytes], *, distinct: bool = False) -> list[bytes]:
    """The ids as a list, or BadParameter naming the first wrong one."""
    if isinstance(ids, bytes | bytearray | str) or not isinstance(ids, Sequence):
        raise BadParameter(
            f"block ids: given {type(ids).__name__}; allowed a list of {ID_BYTES}-byte ids"
        )
    for index, one in enumerate(ids):
        if type(one) is not bytes or len(one) != ID_BYTES:
            size = f" of {len(one)}" if isinstance(one, bytes | str) else ""
            raise BadParameter(
                f"block id {index}: given {type(one).__name__}{size}; allowed bytes of {ID_BYTES}"
            )
    if distinct and len(set(ids)) != len(ids):
        seen: set[bytes] = set()
        twice = next(one for one in ids if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        raise BadParameter(f"block id {twice.hex()}: given twice in one call")
    return list(ids)


def pieces(
    ids: list[bytes], tensors: torch.Tensor | Sequence[torch.Tensor], block_size: int
) -> list[Piece]:
    """One piece an id: a tensor is split evenly along dimension 0, a list is one tensor a block."""
    if isinstance(tensors, torch.Tensor):
        _usable(tensors, "tensor")
        parts = _split(tensors, len(ids))
    elif isinstance(tensors, list | tuple):
        parts = list(tensors)
        if len(parts) != len(ids):
            raise BadParameter(
                f"tensors: given {len(parts)} for {len(ids)} block ids; allowed one a block"
            )
        for index, part in enumerate(parts):
            _usable(part, f"tensor {index}")
    else:
        raise BadParameter(f"tensors: given {type(tensors).__name__}; allowed a tensor or a list of them")
    made = [Piece(part) for part in parts]
    for index, piece in enumerate(made):
        if piece.length == 0:
            raise BadParameter(f"block {index}: given an empty tensor; allowed at least one byte a block")
        if block_size and piece.length != block_size:
            raise BadParameter(
                f"block {index}: given {piece.length} bytes; allowed exactly block_size = {block_size}"
            )
    return made


def _usable(tensor: Any, name: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise BadParameter(f"{name}: given {type(tensor).__name__}; allowed a torch.Tensor")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type not in ("cpu", "cuda"):
        raise BadParameter(
            f"{name}: given {tensor.layout} on {tensor.device}; allowed a dense tensor on CPU or CUDA"
        )
    if not tensor.is_contiguous():
        raise BadParameter(
            f"{name}: given strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)};"
            " allowed contiguous tensors only: .contiguous() makes a copy"
        )


def _split(tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    if count == 1:
        return [tensor]
    if count == 0 and tensor.numel() == 0:
        return []
    rows = tensor.shape[0] if tensor.dim() else 0
    if count == 0 or rows == 0 or rows % count:
        raise BadParameter(
            f"tensor: shape {tuple(tensor.shape)} does not split evenly into {count} blocks"
        )
    size = rows // count
    return [tensor[index * size : (index + 1) * size] for index in range(count)]
