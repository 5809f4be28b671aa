"""One host call, recorded whole before any device runs: dispatches, windows, the host's collectives.

Which devices form a window's comm domain follows from all dispatches of the call: those that are given a
view of the buffer, and the buffers that a host collective names with it share their devices. So the host's
body runs first; then each device gets one queue, in program order, and nothing orders the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.frontends.pypto.annotations import symbols_now
from harness.frontends.pypto.dtypes import DataType
from harness.frontends.pypto.operate import here
from harness.frontends.pypto.values import HostTensor, WindowBuffer, WindowView
from harness.host import World


@dataclass(slots=True)
class Step:
    """One entry of a device's queue: `body(*args, **named)` as a task, its host values bound to memory.

    device: None for a host collective, which every device of its domain runs. at: the user's line.
    """

    name: str
    body: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]
    device: int | None
    symbols: dict[str, int] = field(default_factory=symbols_now)
    at: tuple[Any, int] = (None, -1)


class Recording:
    """What host code has asked for so far. size: how many devices there are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.size = world.size
        self.buffers: list[WindowBuffer] = []
        self.steps: list[Step] = []
        self.tensors: list[HostTensor] = []  # one each base, arguments and the host's own

    def alloc(self, nbytes: int, name: str = "") -> WindowBuffer:
        """A window buffer, zeros, on every device that will use it."""
        label = name or f"window{len(self.buffers)}"
        held = self.world.alloc(nbytes, name=label, init="zero")
        made = WindowBuffer(len(self.buffers), label, nbytes, held)
        self.buffers.append(made)
        return made

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
        self, name: str, body: Callable[..., Any], args: Sequence[Any], device: int
    ) -> None:
        """Queue `body(*args)` on one device."""
        self.steps.append(Step(name, body, tuple(args), {}, device, at=here()))

    def collective(self, name: str, body: Callable[..., Any], *views: WindowView, **named: Any) -> None:
        """Queue `body(*views, **named)` on every device of the views' domain, as PyPTO's builtin
        dispatches of host collectives are."""
        self.steps.append(Step(name, body, views, named, None, at=here()))

    def settle(self) -> None:
        """Give every buffer its domain's devices."""
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
        for buffer in self.buffers:
            buffer.members = tuple(sorted(used[buffer.number] or range(self.size)))

    def queue(self, device: int) -> list[Step]:
        """What one device does, in order. After `settle` only."""
        return [
            step for step in self.steps
            if step.device == device or (step.device is None and device in _domain(step))
        ]


def _domain(step: Step) -> tuple[int, ...]:
    return next(
        (value.buffer.members for value in step.args if isinstance(value, WindowView)), ()
    )
