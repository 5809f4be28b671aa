"""Defects in how a store's client hands over ids and tensors: buffers, ids, waits.

Operations are the client's calls: `store_dump` and `store_load` (block_ids, offset, tensor),
`store_lookup`, `store_prefix` and `store_commit` (block_ids), `store_wait`. What a fault may add to a
transfer's arguments: `spoil` (a dump's tensor is overwritten, a load's is read, before the wait).

Modelled as bugs of the client. Not modelled: memory that is unmapped under a transfer (here it would end
the process; a tensor that the store still holds cannot be), device memory.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Literal

import torch

from harness import Drop, Fault, Operation, Twice

PAGE = 4096
TRANSFERS = frozenset(("store_dump", "store_load"))
WITH_IDS = TRANSFERS | {"store_lookup", "store_prefix", "store_commit"}


class _OfTransfer(Fault, frozen=True, forbid_unknown_fields=True, tag="of_transfer"):
    """A fault of the tensor of a dump or load."""

    family: ClassVar[Literal["environment", "bug"]] = "bug"

    def matches(self, op: Operation) -> bool:
        """Dumps and loads of at least one block."""
        return op.kind in TRANSFERS and bool(op.args["block_ids"])

    def rewrite(self, op: Operation) -> Any:
        """Another tensor of the same contents where that is possible."""
        return op.with_args(tensor=self.changed(op.args["tensor"]))

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """What is handed over instead of `tensor`."""
        raise NotImplementedError


class MisalignedBuffer(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="misaligned_buffer"):
    """The tensor's memory begins one element behind an aligned address."""

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, one element behind the beginning of a page: the same place in every run."""
        size = tensor.element_size()
        room = torch.empty(tensor.numel() + 1 + PAGE // size, dtype=tensor.dtype)
        at = 1 + -room.data_ptr() % PAGE // size
        return room[at : at + tensor.numel()].copy_(tensor)


class NonContiguousBuffer(
    _OfTransfer, frozen=True, forbid_unknown_fields=True, tag="non_contiguous_buffer"
):
    """The tensor's elements lie two apart."""

    def matches(self, op: Operation) -> bool:
        """Transfers of at least two elements: one alone is always contiguous."""
        return super().matches(op) and op.args["tensor"].numel() > 1

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every other element of an allocation twice as long."""
        return tensor.repeat_interleave(2)[::2]


class SmallBuffer(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="small_buffer"):
    """The tensor is an element a block too short."""

    def matches(self, op: Operation) -> bool:
        """Transfers of more than an element a block."""
        return super().matches(op) and op.args["tensor"].numel() > len(op.args["block_ids"])

    def rewrite(self, op: Operation) -> Any:
        """Leave out the last element for each block."""
        tensor = op.args["tensor"]
        return op.with_args(tensor=tensor[: tensor.numel() - len(op.args["block_ids"])])


class WrongBufferDtype(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="wrong_buffer_dtype"):
    """The tensor has another dtype of the same size."""

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same bytes, called float32 (or int32)."""
        return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.float32)


class WrongDevice(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="wrong_device"):
    """The tensor is on a device that the store cannot reach."""

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without memory."""
        return torch.empty_like(tensor, device="meta")


class ReusedBuffer(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="reused_buffer"):
    """The client uses the tensor again before it has waited: freed, overwritten, or read too early."""

    def rewrite(self, op: Operation) -> Any:
        """Spoil it behind the call."""
        return op.with_args(spoil=True)


class WrongShard(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="wrong_shard"):
    """A dump or load concerns the shard after the right one."""

    def rewrite(self, op: Operation) -> Any:
        """Offset + 1."""
        return op.with_args(offset=op.args["offset"] + 1)


class DuplicatedDump(_OfTransfer, frozen=True, forbid_unknown_fields=True, tag="duplicated_dump"):
    """Blocks are dumped a second time at once, and only the second dump is waited for."""

    def matches(self, op: Operation) -> bool:
        """Dumps of at least one block."""
        return op.kind == "store_dump" and super().matches(op)

    def rewrite(self, op: Operation) -> Twice:
        """Twice."""
        return Twice()


class MissingTaskWait(Fault, frozen=True, forbid_unknown_fields=True, tag="missing_task_wait"):
    """The client goes on without waiting for its task."""

    def matches(self, op: Operation) -> bool:
        """Every wait for a task."""
        return op.kind == "store_wait"

    def rewrite(self, op: Operation) -> Drop:
        """Leave it out."""
        return Drop()


class _OfIds(Fault, frozen=True, forbid_unknown_fields=True, tag="of_ids"):
    """A fault of the block ids of a call."""

    def matches(self, op: Operation) -> bool:
        """Calls with at least one id."""
        return op.kind in WITH_IDS and bool(op.args["block_ids"])

    def rewrite(self, op: Operation) -> Any:
        """Other ids."""
        return op.with_args(block_ids=self.changed(list(op.args["block_ids"]), op.rank))

    def changed(self, ids: list[bytes], rank: int) -> list[bytes]:
        """What is handed over instead of `ids`."""
        raise NotImplementedError


class WrongIdLength(_OfIds, frozen=True, forbid_unknown_fields=True, tag="wrong_id_length"):
    """The first id is a byte too long."""

    def changed(self, ids: list[bytes], rank: int) -> list[bytes]:
        """17 bytes."""
        return [ids[0] + b"\0", *ids[1:]]


class DuplicateId(_OfIds, frozen=True, forbid_unknown_fields=True, tag="duplicate_id"):
    """The last id of a call is its first one once more."""

    def matches(self, op: Operation) -> bool:
        """Calls with at least two ids."""
        return super().matches(op) and len(op.args["block_ids"]) > 1

    def changed(self, ids: list[bytes], rank: int) -> list[bytes]:
        """First and last are equal."""
        return [*ids[:-1], ids[0]]


class EmptyIds(_OfIds, frozen=True, forbid_unknown_fields=True, tag="empty_ids"):
    """The list of ids is empty where blocks are meant."""

    def changed(self, ids: list[bytes], rank: int) -> list[bytes]:
        """None at all."""
        return []


class HashSeed(_OfIds, frozen=True, forbid_unknown_fields=True, tag="hash_seed"):
    """Ids depend on the process that makes them, as with Python's own `hash` of a string."""

    def changed(self, ids: list[bytes], rank: int) -> list[bytes]:
        """Ids of the same blocks under this process's seed."""
        return [hashlib.md5(one + bytes([rank % 256])).digest() for one in ids]


__all__ = [
    "DuplicateId",
    "DuplicatedDump",
    "EmptyIds",
    "HashSeed",
    "MisalignedBuffer",
    "MissingTaskWait",
    "NonContiguousBuffer",
    "ReusedBuffer",
    "SmallBuffer",
    "WrongBufferDtype",
    "WrongDevice",
    "WrongIdLength",
    "WrongShard",
]
