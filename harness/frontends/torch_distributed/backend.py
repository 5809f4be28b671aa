"""The process group that stands in for gloo, nccl, mpi or ucc in a simulated world.

torch.distributed's own functions run unchanged above it: they check their arguments, then call a method
of the group, which makes a Call of it and puts the rank's part in flight (exchange.py). Native callers
(DDP's reducer, functional collectives) come in by the same methods.

What gloo refuses (dtypes, reduce operations, sizes) is refused here, at the call. After a time limit has
passed a group is unusable, as gloo's are. Not modelled: devices other than the CPU, backends' own
extensions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from sys import _getframe
from typing import Any

import torch
import torch.distributed as dist

from harness.errors import WrongCollective
from harness.frontends.torch_distributed.calls import ANY, FUNCTIONAL, Call
from harness.frontends.torch_distributed.collectives import refusal
from harness.frontends.torch_distributed.exchange import Exchange, Part, Tensors
from harness.frontends.torch_distributed.handles import SimulatedWork, Together
from harness.frontends.torch_distributed.issuing import (
    Request,
    at_hand,
    called_by,
    metas,
    object_call,
    pieces,
    rows,
)
from harness.frontends.torch_distributed.place import Place
from harness.frontends.torch_distributed.stores import seconds_of
from harness.record import place as line_of

_OPS = {
    getattr(dist.ReduceOp, name.upper()): name
    for name in ("sum", "product", "min", "max", "band", "bor", "bxor", "avg", "premul_sum")
}

def _op(op: Any) -> str:
    return next((name for value, name in _OPS.items() if op == value), str(op))


_Base: Any = dist.ProcessGroup  # its overloads are wider than any caller's use


class SimulatedGroup(_Base):  # type: ignore[misc]
    """One rank's handle of a group. ranks: its global ranks, in the order of the group's own."""

    def __init__(
        self, place: Place, exchange: Exchange, name: str, rank: int, ranks: Sequence[int],
        backend: str, timeout: timedelta | None,
    ) -> None:
        super().__init__(rank, len(ranks))
        self.place = place
        self.exchange = exchange
        self.ranks = tuple(ranks)
        self.backend = backend
        self.timeout = timeout
        self.gone = ""
        self._name = name
        self._rank = rank
        self._seq = 0
        self._messages: dict[tuple[str, int, int], int] = {}
        self._batch: list[SimulatedWork] | None = None

    # What torch asks of any group --------------------------------------------------------------

    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    def rank(self) -> int:
        """This rank's number in it."""
        return self._rank

    @property
    def group_name(self) -> Any:
        """Its name in torch's registry."""
        return self._name

    @property
    def pg_name(self) -> str:
        """The same."""
        return self._name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def getBackendName(self) -> str:
        """What native code sees: no backend whose class it would expect."""
        return "simulated"

    def name(self) -> str:
        """The backend that the program asked for."""
        return self.backend

    def _get_backend_name(self) -> str:
        return self.backend

    def shutdown(self) -> None:
        """The group is destroyed: a later call of it is an error."""
        self.gone = "the group is destroyed"

    abort = shutdown

    def set_timeout(self, timeout: timedelta) -> None:
        """The time limit of its operations."""
        self.timeout = timeout

    _set_default_timeout = set_timeout

    def _get_backend(self, device: torch.device) -> Any:
        return self

    supports_splitting = False
    supports_coalescing = False

    def __repr__(self) -> str:
        return f"<group {self._name!r} of ranks {list(self.ranks)}>"

    # Issuing ------------------------------------------------------------------------------------

    def _issue(self, request: Request) -> SimulatedWork:
        place = self.place
        frame, code, lasti = place.here()
        if place.sim.current.rank != place.index:
            raise WrongCollective(
                f"{request.kind} at {line_of(code, lasti)}: this handle of group {self._name!r} is rank "
                f"{place.index}'s, and another rank uses it: a module that all ranks share keeps it "
                "(only those in the script's folder are each rank's own)"
            )
        what = request.what or object_call()
        call = Call(
            kind=request.kind, rank=self.ranks[self._rank], group=self.ranks, group_name=self._name,
            seq=-1 if place.several else self._sequence(request), op=request.op,
            root=self._global(request.root), peer=self._global(request.peer), tag=request.tag,
            inputs=metas(place, request.given), outputs=metas(place, request.taken),
            splits=request.splits, async_op=request.async_op, number=place.sim.issued, code=code,
            lasti=lasti, at=len(place.sim.events), what=what,
            card=self._card(request, what), thread=place.thread, **at_hand(place, frame, request),
        )
        refused = self.gone or request.refused(len(self.ranks)) or next(
            (why for t in request.inputs if (why := refusal(call.family, t.dtype, request.op))), ""
        )
        if refused:
            place.calls.append(_with(call, number=-1, refused=refused))
            raise WrongCollective(f"{place.called(request.kind, code, lasti)}: {refused}")
        part = Part(place, call, request.inputs, request.outputs)
        work = SimulatedWork(place, part, self.timeout)
        place.offer(request.kind, functools.partial(self._perform, part, request), code, lasti)
        place.outstanding[part.op.number] = work
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _perform(self, part: Part, request: Request) -> None:
        """Announce the call, then put it in flight: one event. Of several threads of a rank the first to
        put theirs in flight has the lower sequence number."""
        place, call = self.place, part.call
        sim = place.sim
        place.point(call.kind, -1, place.index, 0, 0)
        part.snapshot()
        part.op = sim.work(place.lane, call.kind, part.complete, call.code, call.lasti)
        seq = self._sequence(request) if call.seq < 0 else call.seq
        part.call = call = _with(call, seq=seq, number=part.op.number, at=len(sim.events))
        place.calls.append(call)
        place.lane.reads = 0
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in part.inputs)
        peer = call.peer if call.p2p else call.root
        place.event(call.kind, peer, nbytes, None, call.number, call.code, call.lasti)
        if call.async_op:
            part.begin_uses()
        if not call.p2p:
            self.exchange.arrive(part)
        elif call.kind == "send":
            self.exchange.send(part)
        else:
            self.exchange.receive(part)

    def _card(self, request: Request, what: str) -> str:
        """Where NCCL would do it. what: of the call; objects are moved by tensors of torch's own."""
        cards = self.place.surroundings.cards
        if self.backend != "nccl" or not cards.touched or request.kind in ("send", "recv"):
            return ""
        tensors = (*request.given, *request.taken)
        return str(cards.card_for(tensors)) if tensors and what in ("", FUNCTIONAL) else ""

    def _global(self, rank: int) -> int:
        """A rank of the group as the world's; those that are none stay as they are."""
        return self.ranks[rank] if 0 <= rank < len(self.ranks) else rank

    def _sequence(self, request: Request) -> int:
        if request.kind not in ("send", "recv"):
            self._seq += 1
            return self._seq - 1
        key = request.kind, request.peer, request.tag
        count = self._messages.get(key, 0)
        self._messages[key] = count + 1
        return count

    # Collectives --------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> SimulatedWork:
        """All ranks get the reduction of all, in place."""
        opts = dist.AllreduceOptions() if opts is None else opts
        return self._issue(Request(
            "all_reduce", tensors, tensors, op=_op(opts.reduceOp), async_op=opts.asyncOp,
        ))

    allreduce_coalesced = allreduce

    def broadcast(self, tensors: Tensors, opts: Any = None) -> SimulatedWork:
        """All ranks get the root's, in place."""
        opts = dist.BroadcastOptions() if opts is None else opts
        is_root = opts.rootRank == self._rank
        return self._issue(Request(
            "broadcast", tensors, tensors, root=opts.rootRank, async_op=opts.asyncOp,
            reads=tensors if is_root else (), fills=() if is_root else tensors,
        ))

    def reduce(self, tensors: Tensors, opts: Any) -> SimulatedWork:
        """The root gets the reduction of all, in place."""
        is_root = opts.rootRank == self._rank
        return self._issue(Request(
            "reduce", tensors, tensors, op=_op(opts.reduceOp), root=opts.rootRank,
            async_op=opts.asyncOp, fills=tensors if is_root else (),
        ))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """All ranks get everybody's."""
        return self._issue(Request(
            "all_gather", inputs, outputs[0], async_op=_async(opts),
        ))

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The same into one tensor."""
        return self._issue(Request(
            "all_gather_into_tensor", [tensor], [output], fills=pieces(output, len(self.ranks)),
            async_op=_async(opts),
        ))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Several at once."""
        pairs = zip(outputs, inputs, strict=True)
        return Together([self.all_gather_single(output, one, opts) for output, one in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Together:
        """Several at once; outputs: by rank, one for each input."""
        columns = zip(*outputs, strict=True)
        return Together([
            self.allgather([list(column)], [one], opts)
            for column, one in zip(columns, inputs, strict=True)
        ])

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> SimulatedWork:
        """The root gets everybody's."""
        return self._issue(Request(
            "gather", inputs, outputs[0] if outputs else (), root=opts.rootRank,
            async_op=opts.asyncOp,
        ))

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> SimulatedWork:
        """Each rank gets its own of the root's."""
        return self._issue(Request(
            "scatter", inputs[0] if inputs else (), outputs, root=opts.rootRank,
            async_op=opts.asyncOp,
        ))

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None
    ) -> SimulatedWork:
        """Each rank gets its own piece of the reduction."""
        opts = dist.ReduceScatterOptions() if opts is None else opts
        return self._issue(Request(
            "reduce_scatter", inputs[0], outputs, op=_op(opts.reduceOp), async_op=opts.asyncOp,
        ))

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> SimulatedWork:
        """The same from one tensor."""
        opts = dist.ReduceScatterOptions() if opts is None else opts
        return self._issue(Request(
            "reduce_scatter_tensor", [tensor], [output], op=_op(opts.reduceOp),
            reads=pieces(tensor, len(self.ranks)), async_op=opts.asyncOp,
        ))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Together:
        """Several at once."""
        pairs = zip(outputs, inputs, strict=True)
        return Together([self.reduce_scatter_single(output, one, opts) for output, one in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> SimulatedWork:
        """Each rank gets what the others have for it."""
        return self._issue(Request("all_to_all", inputs, outputs, async_op=_async(opts)))

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, output_splits: Sequence[int],
        input_splits: Sequence[int], opts: Any = None,
    ) -> SimulatedWork:
        """The same with one tensor on either side, cut into rows."""
        size = len(self.ranks)
        return self._issue(Request(
            "all_to_all_single", [tensor], [output],
            splits=(tuple(input_splits or ()), tuple(output_splits or ())), async_op=_async(opts),
            reads=rows(tensor, input_splits, size), fills=rows(output, output_splits, size),
        ))

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> SimulatedWork:
        """Until all are there."""
        work = self._issue(Request("barrier", (), (), async_op=_async(opts)))
        limit = getattr(opts, "timeout", None)
        if limit is not None and seconds_of(limit) is not None and limit != _UNSET:
            work._timeout = limit
        return work

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Until all are there, or an error that says who is not."""
        del wait_all_ranks  # the error names all that are missing either way
        work = self._issue(Request("monitored_barrier", (), ()))
        if seconds_of(timeout) is not None:
            work._timeout = timeout
        work.wait()

    # Messages -----------------------------------------------------------------------------------

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> SimulatedWork:
        """A message to `peer` (of the group)."""
        waits = called_by("send")
        return self._issue(Request("send", tensors, (), peer=peer, tag=tag, async_op=not waits))

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> SimulatedWork:
        """The next message from `peer` with that tag."""
        waits = called_by("recv")
        return self._issue(Request("recv", (), tensors, peer=peer, tag=tag, async_op=not waits))

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> SimulatedWork:
        """The message with that tag that was sent first, whoever sent it."""
        waits = called_by("recv")
        return self._issue(Request("recv", (), tensors, peer=ANY, tag=tag, async_op=not waits))

    def _start_coalescing(self, device: torch.device) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device) -> Together:
        works, self._batch = self._batch or [], None
        return Together(works)

    def _unsupported(self, *args: object, **kwargs: object) -> Any:
        _, code, lasti = self.place.here()
        told = self.place.called(_getframe(1).f_code.co_name, code, lasti)
        raise WrongCollective(f"{told}: a simulated world does not have this operation")

    split_group = splitGroup = _unsupported
    merge_remote_group = mergeRemoteGroup = _unsupported


_UNSET = dist.BarrierOptions().timeout


def _async(opts: Any) -> bool:
    return bool(getattr(opts, "asyncOp", True))


def _with(call: Call, **changes: Any) -> Call:
    return functools.partial(Call, **{
        name: getattr(call, name) for name in Call.__slots__ if name not in changes
    })(**changes)
