"""A recorded host call on the simulated fabric: each device goes through its queue.

Memory is bound when a device begins: one flat handle for each host tensor and for each (buffer, element
type) that its queue names, so that a wrong base address (a fault) shows as it does to any rank program.

Between devices only notify and wait order anything; what plain tensors of the host order is in `after`:
a step that reads (or writes) what another device's step wrote begins when that one has ended. A later
writer of what another still reads is not held back (PyPTO does not track it).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from harness.errors import PldRuleError
from harness.frontends.pypto.annotations import bound
from harness.frontends.pypto.cores import CELLS, LANES, Cores
from harness.frontends.pypto.dfx import note
from harness.frontends.pypto.dtypes import DataType
from harness.frontends.pypto.operate import HOST, TASK, Task
from harness.frontends.pypto.recording import Recording, Step
from harness.frontends.pypto.rules import check_dispatched
from harness.frontends.pypto.values import HostTensor, View, WindowView
from harness.host import HostWindow, World


class Device:
    """One device's program: what `world.dispatch` is given. Its arguments are the handles it needs.

    cores: for its tasks, where a step of its queue makes some. Then each lane of the rank runs this
    program, and the last handle is that of their cells.
    """

    def __init__(self, recording: Recording, number: int, *, tasks: bool) -> None:
        self.number = number
        self.cores = Cores() if tasks else None
        self.rests = tasks
        self.__name__ = f"device {number}"
        self.queue = recording.queue(number)
        self._keys: list[tuple[Any, ...]] = []
        self.handles: list[torch.Tensor | HostWindow] = []
        seen: set[tuple[Any, ...]] = set()
        for step in self.queue:
            for value in (*step.args, *step.named.values()):
                key = _key(value)
                if key is None or key in seen:
                    continue
                seen.add(key)
                self._keys.append(key)
                self.handles.append(_held(value))

    def __call__(self, rank: Any, *handles: Any) -> None:
        """Run the queue; on other lanes than the first, tasks."""
        cores = self.cores
        task = Task(rank, self.number)
        if cores is not None:
            *handles, cells = handles  # type: ignore[assignment]
            if rank.lane:
                cores.serve(task, cells)
                return
            cores.begin(task, cells)
        token = TASK.set(task)
        memory = dict(zip(self._keys, handles, strict=True))
        try:
            for step in self.queue:
                note(rank, "dispatch", name=step.name)
                run_step(task, step, memory)
                if cores is not None:
                    cores.finish()
                note(rank, "end")
        finally:
            TASK.reset(token)


def run_step(task: Task, step: Step, memory: dict[Any, Any]) -> None:
    """One entry of a device's queue."""
    rank = task.rank
    task.at = step.at
    for number in step.after:
        _await(rank, ("pld", number), step.at)
    args = [_bound(value, memory) for value in step.args]
    named = {name: _bound(value, memory) for name, value in step.named.items()}
    try:
        with bound(step.symbols) if step.symbols else nullcontext():
            step.body(*args, **named)
    except PldRuleError as error:
        error.at = step.at
        raise
    if step.awaited:
        rank._sim.arrive(("pld", step.number), 1)


def _await(rank: Any, key: Any, at: tuple[Any, int]) -> None:
    """Wait until the step of another device has ended."""
    rank._code, rank._lasti = at
    if not rank._sim.arrived(key):
        rank._lane.pending = ("sync", -1, rank.index, 0, 0)
        rank._sim.block(rank._lane, ("meet", key, 1, (), *at))
        rank._sim.point(rank._lane)
        rank._lane.blocked_on = None
        rank._plain("after")


def _key(value: Any) -> tuple[Any, ...] | None:
    if isinstance(value, HostTensor):
        return ("tensor", id(value.base))
    if isinstance(value, WindowView):
        return ("window", value.buffer.number, value.dtype.torch)
    return None


def _held(value: HostTensor | WindowView) -> torch.Tensor | HostWindow:
    if isinstance(value, HostTensor):
        return value.base
    return flat(value)


def flat(value: WindowView) -> HostWindow:
    """All of a buffer as elements of the view's type."""
    dtype: DataType = value.dtype
    return value.buffer.held.view((value.buffer.nbytes // dtype.get_byte(),), dtype.torch)


def _bound(value: Any, memory: dict[Any, Any]) -> Any:
    """A host value as the device sees it."""
    if isinstance(value, HostTensor):
        data = value.data
        handle = memory["tensor", id(value.base)]
        return View(
            handle, tuple(data.shape), value.dtype,
            offset=int(data.storage_offset() - value.base.storage_offset()), strides=data.stride(),
            name=value.name,
        )
    if isinstance(value, WindowView):
        handle = memory["window", value.buffer.number, value.dtype.torch]
        return View(handle, value.shape, value.dtype, buffer=value.buffer)
    return value


def record(world: World, calls: Sequence[tuple[Any, Sequence[Any]]]) -> Recording:
    """Run the host's bodies on a recording, one after the other, then hand each device its queue.

    calls: bodies, called with the recording and their arguments; each one's window buffers are the same.
    """
    recording = Recording(world)
    token = HOST.set(recording)
    try:
        for body, args in calls:
            recording.again()
            body(recording, *args)
    finally:
        HOST.reset(token)
    recording.settle()
    _check_dispatched(recording)
    for one in recording.tensors:
        world.lend(one.base, one.name)
    tasks = any(step.tasks for step in recording.steps)
    more: list[HostWindow] = []
    if tasks:
        more = [world._alloc(CELLS, torch.int32, "tasks", "zero")]
    for number in range(world.size):
        device = Device(recording, number, tasks=tasks)
        world.dispatch(
            device, *device.handles, *more, device=number, lanes=LANES if tasks else 1
        )
    return recording


def _check_dispatched(recording: Recording) -> None:
    """Every card of a program for several has something to do. Raises PldRuleError (dispatch_loop)."""
    steps = [step for step in recording.steps if step.device is not None]
    if not recording.buffers and len({step.device for step in steps}) < 2:
        return  # a program for one chip
    try:
        check_dispatched([step.device for step in steps], recording.world.device_ids)
    except PldRuleError as error:
        error.at = steps[-1].at
        raise
