"""Plain tensors that an operation in flight reads or fills: were they left alone meanwhile?

A put_nbi from a tensor reads it at its delivery, a get_nbi into one fills it when it lands; until quiet
the program may not write the first and not touch the second. At issue the tensor's bytes and version
counter are noted; at delivery (landing), at quiet and at the end of the run the bytes are compared.
The version tells whether torch wrote them.

What that cannot see: reads; a write of the bytes that are there already; a write that is undone before
anybody looks. `Watching` sees every torch operation on such memory, reads too, with the user's line;
it is on in replay and explain. It does not see numpy, native code and operations on strided views that
share no whole range with the tensor. A tensor that was in flight cannot be resized in that run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.errors import NonContiguous, WrongHandle
from harness.fabric.frames import user_frame_of
from harness.fabric.memory import ITEMSIZE, Buffer, Region
from harness.fabric.windows import OneRegion, SharedWindows
from harness.record import Touched


class TensorUse:
    """One operation in flight on one tensor. fills: it writes the tensor (get_nbi), else reads it."""

    __slots__ = ("fills", "held", "issued", "number", "region", "stage", "tensor", "told", "version")

    def __init__(
        self, number: int, issued: int, tensor: torch.Tensor, region: Region, *, fills: bool
    ) -> None:
        self.number = number
        self.issued = issued
        self.tensor = tensor
        self.region = region
        self.fills = fills
        self.held = region.payload()
        self.version = _version(tensor)
        self.stage = "it landed" if fills else "it was delivered"
        self.told = False

    def look(self, at: int) -> Touched | None:
        """What happened to the tensor since the last look, at event `at`."""
        found = self.region.payload()
        touched = None
        if found != self.held and not self.told:
            self.told = True
            touched = Touched(
                self.number, at, f"before {self.stage}", self.version, _version(self.tensor),
                writes=True,
            )
        return touched

    def passed(self) -> None:
        """It has been delivered, or has landed: from now on it waits for quiet."""
        self.held = self.region.payload()
        self.version = _version(self.tensor)
        self.stage = "quiet"


def _version(tensor: torch.Tensor) -> int:
    """The version counter; -1 for tensors without one (inference mode)."""
    return -1 if tensor.is_inference() else tensor._version


def as_buffer(windows: SharedWindows, rank: int, operation: str, tensor: torch.Tensor) -> Buffer:
    """The tensor as memory of `rank`; the same one for the same bytes throughout a run.

    Raises NonContiguous, WrongDtype, WrongHandle.
    """
    if tensor.device.type != "cpu":
        raise WrongHandle(
            f"rank {rank}: {operation} with a tensor on {tensor.device}: operations that stay in "
            "flight take CPU tensors, windows and buffers"
        )
    if tensor.is_neg() or tensor.is_conj():
        raise NonContiguous(
            f"rank {rank}: {operation} with a tensor whose values are negated or conjugated lazily; "
            "call .resolve_neg().resolve_conj()"
        )
    if not tensor.is_contiguous():
        raise NonContiguous(
            f"rank {rank}: {operation} with a strided tensor, shape {list(tensor.shape)} strides "
            f"{list(tensor.stride())}; dense memory is due"
        )
    nbytes = tensor.numel() * ITEMSIZE[tensor.dtype]
    key = rank, tensor.data_ptr(), nbytes, tensor.dtype
    number = windows.by_tensor.get(key)
    shape = tuple(tensor.shape)
    if number is None:
        name = f"tensor{len(windows.names)}"
        region = OneRegion(rank, Region.over(tensor))
        number = windows.by_tensor[key] = windows.add("tensor", name, shape, tensor.dtype, region)
    return Buffer(number, windows.names[number][1], windows.regions[number], rank, shape, tensor.dtype)


class Watching(TorchDispatchMode):
    """Sees every torch operation of a run, and tells those on tensors that are in flight.

    uses: by operation, those in flight. touched: filled. now: the number of events so far.
    """

    def __init__(self, simulation: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._simulation = simulation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look, then do what was asked for."""
        given = kwargs or {}
        if self._simulation.uses:
            self._look(func, args, given)
        return func(*args, **given)

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for tensor, writes in accesses(func, args, kwargs):
            for use in self._simulation.uses.values():
                if (writes or use.fills) and overlap(tensor, use.region.data):
                    code, lasti = user_frame_of(sys._getframe(2))
                    self._simulation.touched.append(
                        Touched(
                            use.number, len(self._simulation.events), f"before {use.stage}",
                            use.version, _version(use.tensor), writes=writes, by=str(func),
                            lane=self._simulation.current.index, code=code, lasti=lasti,
                        )
                    )


def accesses(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[torch.Tensor, bool]]:
    """The tensors whose bytes an operation reads (False) or writes (True); views do neither, nor do
    operations that ask a tensor for its shape and dtype only."""
    if (name := func.overloadpacket.__name__).endswith("_like") or name.startswith("new_"):
        return
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        alias = argument.alias_info
        if alias is not None and not alias.is_write:
            continue  # the result is a view of it
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield tensor, alias is not None


def overlap(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two CPU tensors share bytes; of a strided one only its whole extent is known."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
        return False
    if not tensor.is_contiguous():
        return False
    begin, held = tensor.data_ptr(), other.data_ptr()
    return (
        begin < held + other.numel() * other.element_size()
        and held < begin + tensor.numel() * tensor.element_size()
    )

