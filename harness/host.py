"""What a host program may call, and what it leaves behind.

`host(world, params)` runs once, on the host, before any rank: it allocates windows, shares its tensors
and dispatches one program a logical rank a round. Nothing runs while it runs: the world records, a
fabric then gives each rank its queue of dispatches. Rules, each with its error:

- tensors and windows come before scalars in a dispatch;
- `device=` is a logical rank in [0, size), whatever cards `device_ids` names;
- every logical rank is dispatched exactly once a round;
- every host tensor is in shared memory when it is prepared, and prepared before it is dispatched.

With the sharing check off (only a fault switches it off) a rank sees a private copy taken at
`prepare`, as between real processes. Source: PyPTO's runtime rules (reference/pypto.md section 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from sys import _getframe
from typing import Any

import torch

from harness.errors import (
    DispatchError,
    Misaligned,
    NonContiguous,
    NotShared,
    OutOfBounds,
    WrongHandle,
)
from harness.fabric.memory import ITEMSIZE, Shape, normal_shape
from harness.interpose import Interposer, Operation

LANES_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class HostWindow:
    """A window as the host sees it: allocated on every rank, passed to dispatches, never read."""

    number: int
    name: str
    nbytes: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    zero: bool
    offset: int = 0

    def __repr__(self) -> str:
        return f"window {self.name!r} {list(self.shape)} {str(self.dtype)[6:]}"

    def view(self, shape: Shape, dtype: torch.dtype, byte_offset: int = 0) -> HostWindow:
        """The same memory from `byte_offset` on as `shape` elements of `dtype`."""
        dims = normal_shape(shape, f"view of {self!r}")
        offset = self.offset + byte_offset
        need = math.prod(dims) * ITEMSIZE[dtype]
        if offset % ITEMSIZE[dtype]:
            raise Misaligned(
                f"host: view of {self!r} at byte offset {offset}: {str(dtype)[6:]} needs a "
                f"multiple of {ITEMSIZE[dtype]}"
            )
        if offset < 0 or offset + need > self.nbytes:
            raise OutOfBounds(
                f"host: view {list(dims)} {str(dtype)[6:]} at byte offset {offset} needs {need} "
                f"bytes of {self!r}, which has {self.nbytes - offset} there (a window's size is "
                "bytes or a shape, never a count of ranks)"
            )
        return HostWindow(
            self.number, self.name, self.nbytes, dims, dtype, self.zero, offset
        )

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        raise WrongHandle(
            "a window was used as a tensor on the host: only ranks reach window memory, with "
            "rank.load"
        )


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One program for one rank, with its arguments as the host gave them. lanes: its workers."""

    program: Callable[..., Any]
    args: tuple[Any, ...]
    lanes: int = 1


@dataclass(slots=True)
class HostProgram:
    """What a host program left behind, ready for a fabric."""

    size: int
    device_ids: tuple[int, ...]
    windows: list[HostWindow] = field(default_factory=list)
    queues: list[list[Dispatch]] = field(default_factory=list)
    lanes: dict[int, int] = field(default_factory=dict)  # by rank, where a dispatch has several
    prepared: dict[int, PreparedTensor] = field(default_factory=dict)
    held: dict[int, tuple[bytes, ...]] = field(default_factory=dict)  # by window: its first contents


@dataclass(frozen=True, slots=True)
class PreparedTensor:
    """A host tensor at `prepare`: the memory that ranks share, or the private copy they get."""

    name: str
    tensor: torch.Tensor
    private: torch.Tensor | None


def _name_of(value: object, frame: Any, fallback: str) -> str:
    """The variable of the calling frame that holds `value`, for error texts."""
    for name, held in frame.f_locals.items():
        if held is value:
            return str(name)
    return fallback


def is_window_or_tensor(value: object) -> bool:
    """Whether `value` counts as a tensor in the rule "tensors before scalars"."""
    return isinstance(value, torch.Tensor | HostWindow)


class World:
    """The host program's interface.

    size: world size. device_ids: the card of each logical rank; any distinct numbers.
    """

    def __init__(
        self, size: int, device_ids: Sequence[int] | None = None,
        interposer: Interposer | None = None,
    ) -> None:
        ids = tuple(range(size)) if device_ids is None else tuple(device_ids)
        if len(ids) != size or len(set(ids)) != size:
            raise DispatchError(f"device_ids {list(ids)}: {size} distinct cards are needed")
        self.size = size
        self.device_ids = ids
        self.recorded = HostProgram(size, ids, queues=[[] for _ in range(size)])
        self._faults = interposer

    def _offer(self, kind: str, rank: int, body: Callable[..., Any], **args: Any) -> Any:
        if self._faults:
            return self._faults.perform(Operation(kind, rank, self.size, args), body)
        return body(**args)

    def alloc(
        self, size: Shape, dtype: torch.dtype | None = None, *, name: str = "",
        init: str | None = None, held: Sequence[bytes] | None = None,
    ) -> HostWindow:
        """A symmetric window on every rank: `alloc(nbytes)`, or `alloc(shape, dtype)`.

        init: "zero" or "poison"; by default zeros for int32 and for bytes, else poison. held: instead,
        what each rank's part holds at first, as an earlier run left it.
        """
        label = name or f"window{len(self.recorded.windows)}"
        if not self._faults:
            window = self._alloc(size, dtype, label, init)
        else:
            window = self._offer(
                "alloc", -1, self._alloc, size=size, dtype=dtype, name=label, init=init
            )
        if held is not None:
            self.recorded.held[window.number] = tuple(held)
        return window

    def _alloc(
        self, size: Shape, dtype: torch.dtype | None, name: str, init: str | None
    ) -> HostWindow:
        element = torch.uint8 if dtype is None else dtype
        dims = normal_shape(size, f"alloc of {name!r}")
        zero = init == "zero" if init else element in (torch.int32, torch.uint8)
        window = HostWindow(
            len(self.recorded.windows), name, math.prod(dims) * ITEMSIZE[element], dims, element,
            zero,
        )
        self.recorded.windows.append(window)
        return window

    def prepare(self, *tensors: torch.Tensor) -> None:
        """Hand host tensors to the ranks. Raises NotShared, NonContiguous, WrongHandle."""
        frame = _getframe(1)
        names = [
            _name_of(tensor, frame, f"tensor{index}") for index, tensor in enumerate(tensors)
        ]
        self._offer("prepare", -1, self._prepare, tensors=tensors, names=names, private=())

    def _prepare(
        self, tensors: Sequence[torch.Tensor], names: Sequence[str], private: Collection[int]
    ) -> None:
        for index, tensor in enumerate(tensors):
            name = names[index]
            if not isinstance(tensor, torch.Tensor):
                raise WrongHandle(f"prepare: {name} is {tensor!r}; only torch tensors are prepared")
            if not tensor.is_contiguous():
                raise NonContiguous(
                    f"prepare: host tensor {name!r} of shape {list(tensor.shape)} has strides "
                    f"{list(tensor.stride())}; pass {name}.contiguous()"
                )
            if index not in private and not tensor.is_shared():  # type: ignore[no-untyped-call]
                raise NotShared(
                    f"prepare: host tensor {name!r} is not in shared memory, so each rank would "
                    f"see a private copy; call {name}.share_memory_() before prepare"
                )
            copy = tensor.clone() if index in private else None
            self.recorded.prepared[id(tensor)] = PreparedTensor(name, tensor, copy)

    def lend(self, tensor: torch.Tensor, name: str) -> None:
        """Hand over a dense host tensor as a runtime does that copies it in and out: it need not be
        in shared memory, and every rank reaches the tensor's own elements."""
        self.recorded.prepared[id(tensor)] = PreparedTensor(name, tensor, None)

    def dispatch(
        self, program: Callable[..., Any], *args: Any, device: int, lanes: int = 1
    ) -> None:
        """Queue `program(rank, *args)` on logical rank `device`. Raises DispatchError.

        lanes: how many workers of the rank run it at the same time, each with its own `rank.lane`;
        the rank's next dispatch begins when all of them have ended.
        """
        if not self._faults:
            self._dispatch(program, args, device, lanes)
            return
        self._offer(
            "dispatch", device, self._dispatch, program=program, args=args, device=device,
            lanes=lanes,
        )

    def _dispatch(
        self, program: Callable[..., Any], args: tuple[Any, ...], device: int, lanes: int
    ) -> None:
        name = getattr(program, "__name__", repr(program))
        if type(lanes) is not int or not 1 <= lanes <= LANES_MAX:
            raise DispatchError(
                f"dispatch of {name} on rank {device}: lanes={lanes!r} is outside 1..{LANES_MAX}"
            )
        if not 0 <= device < self.size:
            hint = ""
            if device in self.device_ids:
                hint = (
                    f": {device} is a card in device_ids {list(self.device_ids)}, its logical rank "
                    f"is {self.device_ids.index(device)}"
                )
            raise DispatchError(
                f"dispatch of {name}: device={device} is outside the logical ranks "
                f"0..{self.size - 1}{hint}"
            )
        scalar = -1
        for index, arg in enumerate(args):
            if isinstance(arg, HostWindow):
                is_tensor = True
            elif isinstance(arg, torch.Tensor):
                is_tensor = True
                if id(arg) not in self.recorded.prepared:
                    raise DispatchError(
                        f"dispatch of {name} on rank {device}: the tensor at argument {index} was "
                        "never prepared; call world.prepare(...) on it first"
                    )
            else:
                is_tensor = False
            if not is_tensor and scalar < 0:
                scalar = index
            elif is_tensor and scalar >= 0:
                raise DispatchError(
                    f"dispatch of {name} on rank {device}: argument {scalar} is the scalar "
                    f"{args[scalar]!r}, but the tensor at argument {index} follows it; tensors "
                    "come before scalars"
                )
        queues = self.recorded.queues
        queue = queues[device]
        shortest = min(map(len, queues))
        if len(queue) > shortest:
            behind = next(rank for rank in range(self.size) if len(queues[rank]) == shortest)
            raise DispatchError(
                f"dispatch of {name}: rank {device} is dispatched again before rank {behind} was "
                f"dispatched in round {len(queue) - 1}; every logical rank comes once a round"
            )
        queue.append(Dispatch(program, args, lanes))
        if lanes > 1:
            self.recorded.lanes[device] = max(lanes, self.recorded.lanes.get(device, 1))

    def finished(self) -> HostProgram:
        """The recorded program. Raises DispatchError when a rank is missing from the last round."""
        rounds = max(1, *(len(queue) for queue in self.recorded.queues))
        missing = [r for r, queue in enumerate(self.recorded.queues) if len(queue) < rounds]
        if missing:
            raise DispatchError(
                f"round {rounds - 1}: no dispatch for rank{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(str, missing))}; the dispatch loop must cover all "
                f"{self.size} device_ids {list(self.device_ids)}"
            )
        return self.recorded
