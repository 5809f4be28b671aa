"""One block's tensor as bytes: a view of host memory, or a staged copy of a device's.

A CPU tensor is read and written in place, without a copy. A CUDA tensor goes through a host copy;
work that was queued on the caller's stream before the call comes first. Refused at the call: what is
not dense, not contiguous, empty, of the wrong length, or without memory that holds its values.
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
    """The bytes of one block's tensor: `length` of them from `begin` on, and the dtype they stand for.

    `of` makes the pieces of one large tensor without a torch call for each.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        flat = _flat(tensor)
        self._set(flat, flat.data_ptr(), 0, flat.numel(), dtype_name(tensor))

    @classmethod
    def of(cls, flat: torch.Tensor, address: int, begin: int, length: int, dtype: str) -> Piece:
        """A part of `flat` (contiguous uint8), which begins at `address`."""
        piece = cls.__new__(cls)
        piece._set(flat, address, begin, length, dtype)
        return piece

    def _set(self, flat: torch.Tensor, address: int, begin: int, length: int, dtype: str) -> None:
        self._flat = flat  # keeps the memory
        self._at = address + begin
        self._begin = begin
        self.length = length
        self.dtype = dtype
        self._staged: torch.Tensor | None = None
        self._after: Any = None
        if flat.is_cuda:
            self._after = torch.cuda.current_stream(flat.device).record_event()

    @property
    def address(self) -> int:
        """Where in host memory the bytes are, or will be: of a device's tensor its copy, page-aligned."""
        if self._after is None:
            return self._at
        return 0 if self._staged is None else self._staged.data_ptr()

    def outgoing(self) -> memoryview:
        """The bytes to write, in host memory."""
        if self._after is None:
            return _memory(self._at, self.length)
        self._staged = page_aligned(self.length)
        self._from_device(self._staged)
        return view_of(self._staged)

    def incoming(self) -> memoryview:
        """Host memory to fill; then call `landed`."""
        if self._after is None:
            return _memory(self._at, self.length)
        self._staged = page_aligned(self.length)
        return view_of(self._staged)

    def landed(self) -> None:
        """What was filled reaches the tensor."""
        if self._staged is not None:
            self._to_device(self._staged)
            self._staged = None

    def fill(self, source: Piece) -> None:
        """Copy `source` (host memory, same length) into the tensor; there when this returns."""
        if self._after is None:
            _copy(self, source)
        else:
            self._to_device(source._bytes())

    def copied_to(self, target: Piece) -> None:
        """Copy the tensor into `target` (host memory, same length)."""
        if self._after is None:
            _copy(target, self)
        else:
            self._from_device(target._bytes())

    def _bytes(self) -> torch.Tensor:
        return self._flat[self._begin : self._begin + self.length]

    def _to_device(self, source: torch.Tensor) -> None:
        """After the work queued before the call, and there when this returns."""
        self._after.synchronize()
        self._bytes().copy_(source)
        torch.cuda.current_stream(self._flat.device).synchronize()

    def _from_device(self, target: torch.Tensor) -> None:
        """After the work queued before the call, and there when this returns."""
        self._after.synchronize()
        target.copy_(self._bytes())


def _copy(target: Piece, source: Piece) -> None:
    """Between host memories, in this thread alone and without the GIL.

    torch would share each copy among threads of its own: slower here, where the workers are as many.
    """
    if target.length != source.length:
        raise ValueError(f"a copy of {source.length} bytes into {target.length}")
    ctypes.memmove(target._at, source._at, source.length)


def dtype_name(tensor: torch.Tensor) -> str:
    """As a block's header has it: `float16`."""
    return str(tensor.dtype).removeprefix("torch.")


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def page_aligned(length: int) -> torch.Tensor:
    """`length` bytes of fresh memory that begins on a page."""
    return torch.frombuffer(mmap.mmap(-1, max(length, 1)), dtype=torch.uint8, count=length)


def view_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a host tensor of uint8; the caller keeps the tensor."""
    return _memory(tensor.data_ptr(), tensor.numel())


def _memory(address: int, length: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * length).from_address(address)).cast("B")


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
        made = _split(tensors, len(ids))
    elif isinstance(tensors, list | tuple):
        if len(tensors) != len(ids):
            raise BadParameter(
                f"tensors: given {len(tensors)} for {len(ids)} block ids; allowed one a block"
            )
        for index, part in enumerate(tensors):
            _usable(part, f"tensor {index}")
        made = [Piece(part) for part in tensors]
    else:
        raise BadParameter(f"tensors: given {type(tensors).__name__}; allowed a tensor or a list of them")
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
    odd = "quantised " if tensor.is_quantized else "nested " if tensor.is_nested else ""
    if odd or tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        raise BadParameter(
            f"{name}: given {odd}{tensor.layout} on {tensor.device}; allowed a dense tensor on CPU or"
            " CUDA"
        )
    if not tensor.is_contiguous():
        raise BadParameter(
            f"{name}: given strides {tuple(tensor.stride())} for shape {tuple(tensor.shape)};"
            " allowed contiguous tensors only: .contiguous() makes a copy"
        )
    if not _has_memory(tensor):
        raise BadParameter(
            f"{name}: given a tensor whose memory was given up, or that never had any (fake, or in a"
            " transform); allowed a tensor with memory for its elements"
        )
    if tensor.is_conj() or tensor.is_neg():
        raise BadParameter(
            f"{name}: given a conjugate or negative view, whose memory does not hold its values; allowed"
            " plain tensors: .resolve_conj().resolve_neg() makes a copy"
        )


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements lie in its storage: `resize_(0)`, as sharded training frees it, or a
    fake tensor would have the store read what belongs to nobody."""
    try:
        storage = tensor.untyped_storage()
        end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
        return storage.device.type == tensor.device.type and end <= storage.nbytes()
    except RuntimeError:  # in a transform (vmap) a tensor has no storage
        return False


def _split(tensor: torch.Tensor, count: int) -> list[Piece]:
    if count == 1:
        return [Piece(tensor)]
    if count == 0 and tensor.numel() == 0:
        return []
    rows = tensor.shape[0] if tensor.dim() else 0
    if count == 0 or rows == 0 or rows % count:
        raise BadParameter(
            f"tensor: shape {tuple(tensor.shape)} does not split evenly into {count} blocks"
        )
    flat, dtype = _flat(tensor), dtype_name(tensor)
    size, address = flat.numel() // count, flat.data_ptr()
    return [Piece.of(flat, address, index * size, size, dtype) for index in range(count)]
