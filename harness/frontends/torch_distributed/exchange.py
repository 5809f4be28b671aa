"""Where the calls of a group's ranks meet: who has arrived, whether they agree, what each one gets.

A collective of a group meets by its sequence number; a message by sender, receiver and tag, in the order
in which either side comes. When all have arrived, results are computed from what the inputs were at the
calls, and each rank's part may complete, which is an event of its own that writes its outputs. Where
calls disagree every member gets a CollectiveMismatch instead of data.

Sends are rendezvous: a send completes when its recv is there. Programs that rely on buffering are
thereby found; gloo and NCCL promise none. Not modelled: transfers in pieces.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import CollectiveMismatch
from harness.fabric.flight import digest
from harness.fabric.tensors import TensorUse
from harness.fabric.works import Work
from harness.frontends.torch_distributed.agreement import (
    Disagreement,
    disagreement,
    message_disagreement,
)
from harness.frontends.torch_distributed.calls import ANY, FUNCTIONAL, Call
from harness.frontends.torch_distributed.collectives import results
from harness.frontends.torch_distributed.place import Place
from harness.record import place

Tensors = Sequence[torch.Tensor]


class Memory:
    """The bytes of a dense CPU tensor, read without making its storage unresizable."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.data = tensor.detach()

    def payload(self) -> bytes:
        """What it holds now."""
        return ctypes.string_at(self.data.data_ptr(), self.data.numel() * self.data.element_size())


def _watchable(tensor: torch.Tensor) -> bool:
    dense = tensor.device.type == "cpu" and not tensor.is_sparse
    return dense and tensor.is_contiguous() and tensor.numel() > 0


class Part:
    """One rank's part in a collective, or one end of a message.

    given: what its inputs were at the call. outputs: filled when it completes, in the order of the
    results. error: what its wait raises. source: of a recv, the group rank of the sender.
    """

    def __init__(self, place: Place, call: Call, inputs: Tensors, outputs: Tensors) -> None:
        self.place = place
        self.call = call
        self.inputs = inputs
        self.outputs = list(outputs)
        self.op: Work
        self.given: list[torch.Tensor] = []
        self.due: Tensors | None = None
        self.error: Exception | None = None
        self.source = ANY
        self.meeting: Meeting | None = None
        self._uses: list[TensorUse] = []

    @property
    def told(self) -> str:
        """The call and its line, for errors."""
        return self.place.called(self.call.kind, self.call.code, self.call.lasti)

    def snapshot(self) -> None:
        """Keep what the inputs hold at the call, and tell of others that are using these tensors."""
        self._meet_others()
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            self.given = [
                tensor.detach().coalesce().clone() if tensor.is_sparse else
                tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in self.inputs
            ]

    def _meet_others(self) -> None:
        place, call = self.place, self.call
        for tensors, writes in ((self.inputs, False), (self.outputs, True)) if place.uses else ():
            for tensor in tensors:
                place.touching(tensor, call.kind, call.code, call.lasti, writes=writes)

    def begin_uses(self) -> None:
        """From now on the tensors are in flight (asynchronous calls only)."""
        for tensors, fills in ((self.outputs, True), (self.inputs, False)):
            for tensor in tensors:
                if _watchable(tensor) and not any(tensor is use.tensor for use in self._uses):
                    memory: Any = Memory(tensor)
                    use = TensorUse(
                        self.op.number, len(self.place.sim.events) - 1, tensor, memory, fills=fills
                    )
                    use.stage = "it completed"
                    self._uses.append(use)
        self.place.uses += self._uses

    def _look(self) -> None:
        sim = self.place.sim
        for use in self._uses:
            touched = use.look(len(sim.events))
            if touched is not None:
                sim.touched.append(touched)

    def end_uses(self) -> None:
        """The program has waited: its tensors are its own again."""
        if self._uses:
            self._look()
            self.place.uses = [use for use in self.place.uses if use not in self._uses]
            self._uses = []

    def complete(self) -> bytes | None:
        """Write the outputs; what the event keeps of them. Called in whichever lane moves."""
        value: bytes | None = None
        if self._uses:
            self._look()
        if self.error is None and self.due is not None and self.outputs:
            try:
                value = self._write(self.due)
            except Exception as error:
                self.error = error
        if self._uses:
            for use in self._uses:
                use.held = use.region.payload()
                use.version = -1 if use.tensor.is_inference() else use.tensor._version
                use.stage = "its wait"
        return value

    def _write(self, due: Tensors) -> bytes | None:
        inference = any(tensor.is_inference() for tensor in self.outputs)
        with torch._C._DisableTorchDispatch(), torch.inference_mode() if inference else torch.no_grad():
            for tensor, value in zip(self.outputs, due, strict=True):
                if tensor.is_sparse:
                    tensor.copy_(value)
                else:
                    tensor.detach().copy_(value.reshape(tensor.shape))
        if self.call.what not in ("", FUNCTIONAL):  # objects are padded with whatever was in memory
            return None
        dense = [value.to_dense() if value.is_sparse else value.contiguous() for value in due]
        return digest(b"".join(Memory(value).payload() for value in dense if value.numel()))

    def expire(self, seconds: float) -> None:
        """Nobody came in time: the wait raises, and so does whoever still comes."""
        missing: list[int] = []
        if self.meeting is not None:
            missing = self.meeting.missing()
            self.meeting.failed = f"rank {self.call.rank} has given up after {seconds * 1000:.0f}ms"
        tell = f"; not arrived: {_ranks(missing)}" if missing else ""
        self.error = dist.DistBackendError(
            f"{self.told}: Timed out waiting {seconds * 1000:.0f}ms{tell}"
        )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


class Meeting:
    """One collective of a group: the parts that have arrived, by global rank."""

    def __init__(self, group: tuple[int, ...]) -> None:
        self.group = group
        self.parts: dict[int, Part] = {}
        self.failed = ""

    def missing(self) -> list[int]:
        """The members that have not arrived."""
        return [rank for rank in self.group if rank not in self.parts]


class Exchange:
    """All collectives and messages of one run."""

    def __init__(self) -> None:
        self._meetings: dict[tuple[str, int], Meeting] = {}
        self._sends: dict[tuple[str, int], list[Part]] = {}  # by group and receiver
        self._receives: dict[tuple[str, int], list[Part]] = {}

    def arrive(self, part: Part) -> None:
        """A rank's part in a collective of its group."""
        call = part.call
        key = call.group_name, call.seq
        meeting = self._meetings.setdefault(key, Meeting(call.group))
        part.meeting = meeting
        meeting.parts[call.rank] = part
        if meeting.failed:
            part.error = dist.DistBackendError(
                f"{part.told}: Connection closed by peer: {meeting.failed}"
            )
            _may_complete([part])
        elif call.group != meeting.group:
            found = disagreement([other.call for other in meeting.parts.values()])
            assert found is not None
            meeting.failed = found.text
            _refuse(list(meeting.parts.values()), found)
        elif len(meeting.parts) == len(meeting.group):
            del self._meetings[key]
            _settle([meeting.parts[rank] for rank in meeting.group])

    def send(self, part: Part) -> None:
        """One end of a message; `part.call.peer` is the receiver."""
        call = part.call
        waiting = self._receives.setdefault((call.group_name, call.peer), [])
        for other in waiting:
            if other.call.tag == call.tag and other.call.peer in (ANY, call.rank):
                waiting.remove(other)
                _hand_over(part, other)
                return
        self._sends.setdefault((call.group_name, call.peer), []).append(part)

    def receive(self, part: Part) -> None:
        """The other end; `part.call.peer` is the sender, or ANY."""
        call = part.call
        waiting = self._sends.setdefault((call.group_name, call.rank), [])
        for other in waiting:
            if other.call.tag == call.tag and call.peer in (ANY, other.call.rank):
                waiting.remove(other)
                _hand_over(other, part)
                return
        self._receives.setdefault((call.group_name, call.rank), []).append(part)


def _may_complete(parts: Sequence[Part]) -> None:
    for part in parts:
        part.place.sim.work_may_complete(part.op)


def _refuse(parts: Sequence[Part], found: Disagreement) -> None:
    odd, usual = found.odd, found.usual
    text = (
        f"{found.text} ({found.kind.replace('_', ' ')}; rank {odd.rank} at {place(odd.code, odd.lasti)}, "
        f"rank {usual.rank} at {place(usual.code, usual.lasti)})"
    )
    for part in parts:
        part.error = CollectiveMismatch(f"{part.told}: {text}")
    _may_complete(parts)


def _settle(parts: Sequence[Part]) -> None:
    """All members have arrived: what each of them gets."""
    calls = [part.call for part in parts]
    found = disagreement(calls)
    if found is not None:
        _refuse(parts, found)
        return
    first = calls[0]
    root = first.group.index(first.root) if first.root != ANY else ANY
    compute(parts, lambda: results(first.family, [p.given for p in parts], op=first.op, root=root))
    _may_complete(parts)


def compute(parts: Sequence[Part], body: Callable[[], list[list[torch.Tensor] | None]]) -> None:
    """Give each part what is due to it, or the error with which the computation ends."""
    try:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            found = body()
    except Exception as error:
        for part in parts:
            part.error = error
        return
    for part, due in zip(parts, found, strict=True):
        part.due = due


def _hand_over(sender: Part, receiver: Part) -> None:
    found = message_disagreement(sender.call, receiver.call)
    receiver.source = sender.call.group.index(sender.call.rank)
    if found is not None:
        _refuse([sender, receiver], found)
        return
    receiver.due = sender.given
    _may_complete([sender, receiver])
