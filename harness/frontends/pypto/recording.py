"""One host call, recorded whole before any device runs: dispatches, windows, the host's collectives.

Which devices form a window's comm domain follows from all dispatches of the call: those that are given a
view of the buffer, and the buffers that a host collective names with it share their devices. So the
host's body runs first; then each device gets one queue, in program order, and nothing orders the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from harness.errors import PldRuleError
from harness.frontends.pypto.annotations import symbols_now
from harness.frontends.pypto.dtypes import DataType
from harness.frontends.pypto.operate import here, operate
from harness.frontends.pypto.rules import check_dispatched
from harness.frontends.pypto.values import HostTensor, View, WindowBuffer, WindowView
from harness.host import World

if TYPE_CHECKING:
    from harness.frontends.pypto.functions import Function


@dataclass(slots=True)
class Step:
    """One entry of a device's queue: `body(*args, **named)` as a task, its host values bound to memory.

    number: its place in program order. device: None for a host collective, which every device of its
    domain runs. at: the user's line. writes: positions of the arguments that it may write. after: the
    numbers of other devices' steps that it waits for; awaited: whether another's waits for it. tasks:
    whether it makes any (tasks.py).
    """

    number: int
    name: str
    body: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]
    device: int | None
    writes: Sequence[int] = ()
    symbols: dict[str, int] = field(default_factory=symbols_now)
    at: tuple[Any, int] = (None, -1)
    after: list[int] = field(default_factory=list)
    awaited: bool = False
    tasks: bool = False


class Recording:
    """What host code has asked for so far. size: how many devices there are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.size = world.size
        self.buffers: list[WindowBuffer] = []
        self.steps: list[Step] = []
        self.tensors: list[HostTensor] = []  # one each base, arguments and the host's own
        self.kept: list[list[bytes]] | None = None  # what retained windows hold
        self._allocated = 0  # in the call that is recorded
        self.overrides: dict[str, Callable[..., Any]] = {}  # of sub-workers
        self.looped: set[int] = set()  # devices that some `device=` has named

    def alloc(self, nbytes: int, name: str = "") -> WindowBuffer:
        """A window buffer, zeros, on every device that will use it."""
        number = self._allocated
        self._allocated += 1
        if number < len(self.buffers):  # of the call before, on the same worker
            return self.buffers[number]
        label = name or f"window{number}"
        kept = self.kept[number] if self.kept is not None and number < len(self.kept) else None
        held = self.world.alloc(nbytes, name=label, init="zero", held=kept)
        made = WindowBuffer(len(self.buffers), label, nbytes, held)
        self.buffers.append(made)
        return made

    def again(self) -> None:
        """Another call begins, on the windows of the one before."""
        self._allocated = 0

    def tensor(self, base: torch.Tensor, name: str) -> HostTensor:
        """A tensor of the host that devices may be given."""
        made = HostTensor(base, name)
        self.tensors.append(made)
        return made

    def create(self, shape: tuple[int, ...], dtype: DataType, name: str = "") -> HostTensor:
        """`pl.create_tensor` in host code."""
        made = torch.zeros(shape, dtype=dtype.torch)
        return self.tensor(made, name or f"tensor{len(self.tensors)}")

    def dispatch(
        self, name: str, body: Callable[..., Any], args: Sequence[Any], device: int, *,
        function: Function | None = None, tasks: bool = False,
    ) -> None:
        """Queue `body(*args)` on one device. function: whose annotations say what it writes. tasks: it
        makes some."""
        writes = function.written if function is not None else range(len(args))
        self._add(
            Step(len(self.steps), name, body, tuple(args), {}, device, writes, at=here(), tasks=tasks)
        )

    def sub_worker(self, function: Function, args: Sequence[Any]) -> None:
        """Queue a function of the host that runs when what it reads has been written; it gets torch's own
        tensors. It stands in the queue of the device that wrote last what it reads."""
        given = tuple(args)
        body = self.overrides.get(function.name)

        def work(*views: Any) -> None:
            for value in views:
                if isinstance(value, View):
                    operate("load", src=value.handle, at=value.offset, shape=0)  # a scheduling point
            plain = [value.data if isinstance(value, HostTensor) else value for value in given]
            if body is None:
                function.body(*plain)
            else:
                body(plain)

        step = Step(len(self.steps), function.name, work, given, {}, 0, function.written, at=here())
        for earlier in reversed(self.steps):
            if earlier.device is not None and _overlap(earlier, step):
                step.device = earlier.device
                break
        self._add(step)

    def _add(self, step: Step) -> None:
        for earlier in self.steps:
            if earlier.device not in (None, step.device) and _overlap(earlier, step):
                step.after.append(earlier.number)
                earlier.awaited = True
        self.steps.append(step)

    def collective(self, name: str, body: Callable[..., Any], *views: WindowView, **named: Any) -> None:
        """Queue `body(*views, **named)` on every device of the views' domain, as PyPTO's builtin
        dispatches of host collectives are."""
        self.steps.append(Step(len(self.steps), name, body, views, named, None, at=here()))

    def settle(self) -> None:
        """Give every buffer its domain's devices. Raises PldRuleError (`dispatch_loop`)."""
        if len(self.looped) > 1:
            try:
                check_dispatched(sorted(self.looped), self.world.device_ids)
            except PldRuleError as error:
                error.at = self.steps[-1].at
                raise
        used: dict[int, set[int]] = {buffer.number: set() for buffer in self.buffers}
        together: list[set[int]] = []
        for step in self.steps:
            numbers = {
                value.buffer.number for value in (*step.args, *step.named.values())
                if isinstance(value, WindowView)
            }
            if step.device is None:
                together.append(numbers)
            else:
                for number in numbers:
                    used[number].add(step.device)
        for _ in together:  # until nothing changes; a chain is at most as long as there are collectives
            before = {number: set(devices) for number, devices in used.items()}
            for numbers in together:
                devices = set().union(*(used[number] for number in numbers))
                for number in numbers:
                    used[number] |= devices
            if before == used:
                break
        self._name_types()
        for buffer in self.buffers:
            buffer.members = tuple(sorted(used[buffer.number] or range(self.size)))

    def _name_types(self) -> None:
        """A buffer of which all views have one element type is a window of that type, in reports too."""
        types: dict[int, set[torch.dtype]] = {}
        for step in self.steps:
            for value in (*step.args, *step.named.values()):
                if isinstance(value, WindowView):
                    types.setdefault(value.buffer.number, set()).add(value.dtype.torch)
        for buffer in self.buffers:
            found = types.get(buffer.number, set())
            known = self.world.recorded.windows
            if len(found) == 1 and known[buffer.held.number] is buffer.held:
                (dtype,) = found
                shape = (buffer.nbytes // dtype.itemsize,)
                buffer.held = replace(buffer.held, dtype=dtype, shape=shape)
                known[buffer.held.number] = buffer.held

    def queue(self, device: int) -> list[Step]:
        """What one device does, in order. After `settle` only."""
        return [
            step for step in self.steps
            if step.device == device or (step.device is None and device in _domain(step))
        ]


def _overlap(earlier: Step, later: Step) -> bool:
    """Whether the later step touches what the earlier one may have written in tensors of the host."""
    for position in earlier.writes:
        wrote = earlier.args[position]
        if isinstance(wrote, HostTensor):
            for value in later.args:
                if isinstance(value, HostTensor) and value.base is wrote.base:
                    (a, b), (c, d) = _span(wrote.data), _span(value.data)
                    if a < d and c < b:
                        return True
    return False


def _span(data: torch.Tensor) -> tuple[int, int]:
    """First element and the one behind the last, in the storage."""
    first = int(data.storage_offset())
    if not data.numel():
        return first, first
    last = sum((n - 1) * int(s) for n, s in zip(data.shape, data.stride(), strict=True))
    return first, first + last + 1


def _domain(step: Step) -> tuple[int, ...]:
    return next(
        (value.buffer.members for value in step.args if isinstance(value, WindowView)), ()
    )
