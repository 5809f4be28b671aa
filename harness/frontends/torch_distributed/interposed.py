"""A process group that stands before a real one: it records every call and does what faults want.

    install(door)        from now on every process group of this process is made so

The user's program is not changed: it asks for gloo or NCCL and is told that it has it, DDP and FSDP2
included. The backend is registered with `dist.Backend.register_backend`; since programs ask for others by
name, `install` also puts itself before the two functions of torch through which all groups are made.

A call is an Operation, offered to the plan's faults once (harness/interpose.py). Beside the answers that
every operation has, a fault may set arguments of it: `held` (it goes out after the next call of its
kind, or when somebody asks for its result), `flip_input` and `flip_output` (element, bit: one bit of the
first tensor, before the call or once it is complete), `afterwards` (called as soon as the call has gone
out).

Modelled: groups of gloo and NCCL, sub-groups, every collective that Python code calls and those that C++
code (DDP, functional collectives) calls through a Python group. Not modelled: MPI, UCC; NCCL's
coalescing of sends and receives; `split_group`; connections that close when a group is destroyed (they
stay open until the process ends).
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, PrefixStore, get_debug_level
from torch.distributed import ProcessGroup, Work, distributed_c10d

from harness.errors import NotHere, UsageError
from harness.fabric.frames import user_frame_of
from harness.frontends.torch_distributed.calls import ANY, P2P, ROOTED, Call, TensorMeta
from harness.frontends.torch_distributed.late_work import LateWork
from harness.frontends.torch_distributed.recorded import Fired, append, stand_in
from harness.interpose import Interposer, Operation
from harness.plan import Fault
from harness.resolver import no_dns

BACKEND = "rankfault"
BACKENDS = ("gloo", "nccl")
# Method of ProcessGroup -> the collective, and which of its arguments are inputs and outputs.
METHODS: dict[str, tuple[str, int | None, int | None]] = {
    "allreduce": ("all_reduce", 0, 0),
    "allreduce_coalesced": ("all_reduce", 0, 0),
    "broadcast": ("broadcast", 0, 0),
    "reduce": ("reduce", 0, 0),
    "allgather": ("all_gather", 1, 0),
    "allgather_coalesced": ("all_gather", 1, 0),
    "_allgather_base": ("all_gather_into_tensor", 1, 0),
    "all_gather_single": ("all_gather_into_tensor", 1, 0),
    "allgather_into_tensor_coalesced": ("all_gather_into_tensor", 1, 0),
    "all_gather_single_coalesced": ("all_gather_into_tensor", 1, 0),
    "gather": ("gather", 1, 0),
    "scatter": ("scatter", 1, 0),
    "reduce_scatter": ("reduce_scatter", 1, 0),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1, 0),
    "reduce_scatter_single": ("reduce_scatter_tensor", 1, 0),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_tensor", 1, 0),
    "reduce_scatter_single_coalesced": ("reduce_scatter_tensor", 1, 0),
    "alltoall": ("all_to_all", 1, 0),
    "alltoall_base": ("all_to_all_single", 1, 0),
    "all_to_all_single": ("all_to_all_single", 1, 0),
    "send": ("send", 0, None),
    "recv": ("recv", None, 0),
    "recv_anysource": ("recv", None, 0),
    "barrier": ("barrier", None, None),
    "monitored_barrier": ("monitored_barrier", None, None),
}


class Door:
    """What all groups of one rank's process pass through: the faults, the record, the limit.

    limit: seconds; no group is given a longer time-out. record: a file to append to, -1 = none.
    backend: is made instead of the one that the program asks for, "" = the program's. pauses: calls, by
    number, before which the process stops itself, until the harness continues it. near: all ranks are on
    this machine: they need no DNS to meet.
    """

    def __init__(
        self, faults: Sequence[Fault] = (), *, limit: float = float("inf"), record: int = -1,
        backend: str = "", pauses: Sequence[int] = (), near: bool = False,
    ) -> None:
        self.near = near
        self._pauses = frozenset(pauses)
        self.limit = limit
        self.backend = backend
        self._record = record
        self._calls = 0
        self._held: list[tuple[str, LateWork]] = []
        self._sequence: dict[tuple[Any, ...], int] = {}
        self._storages: dict[int, int] = {}
        # A backend that dies joins its threads; if that happens while Python lets go of the group, the
        # interpreter's lock is held, and a thread that frees a tensor waits for it: for ever.
        self.kept: list[Any] = []
        self.faults = Interposer(faults, self._fired, real=True)

    def _fired(self, index: int, op: Operation) -> None:
        self.note(Fired(index, self._calls - 1))

    def note(self, entry: Call | Fired) -> None:
        """Write it down."""
        if self._record >= 0:
            append(self._record, entry)

    def shortened(self, timeout: Any) -> Any:
        """A group's time-out, or the limit where that is shorter."""
        if self.limit == float("inf"):
            return timeout
        limit = timedelta(seconds=self.limit)
        return limit if timeout is None or timeout > limit else timeout

    def begin(self, call: Call) -> None:
        """A call is about to be made."""
        self._calls += 1
        self.note(call)
        if self._calls - 1 in self._pauses:
            os.kill(os.getpid(), signal.SIGSTOP)

    def hold(self, kind: str, new: list[LateWork]) -> None:
        """A call of this kind was made: what was held back goes out behind it. new: is held from now
        on."""
        due = [work for one, work in self._held if one == kind]
        self._held = [entry for entry in self._held if entry[0] != kind] + [(kind, one) for one in new]
        for work in due:
            work.go_out()

    def finish(self) -> None:
        """The program is over: what is still held back goes out."""
        held, self._held = self._held, []
        for _, work in held:
            work.go_out()

    def next_of(self, key: tuple[Any, ...]) -> int:
        """How many calls of this group, or messages of this pair and tag, came before."""
        self._sequence[key] = self._sequence.get(key, -1) + 1
        return self._sequence[key]

    def meta(self, tensor: torch.Tensor) -> TensorMeta:
        """A tensor as a call sees it."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided:
            return TensorMeta(tuple(tensor.shape), dtype)
        storage = self._storages.setdefault(tensor.untyped_storage().data_ptr(), len(self._storages))
        size, first = tensor.element_size(), int(tensor.storage_offset())
        strides = tuple(tensor.stride())
        last = sum((n - 1) * step for n, step in zip(tensor.shape, strides, strict=True))
        hi = (first + last + 1) * size if tensor.numel() else first * size
        return TensorMeta(tuple(tensor.shape), dtype, strides, storage, first * size, hi)


class InterposedGroup(ProcessGroup):
    """One rank's end of a group; `real` does the work. ranks: global ranks by group rank."""

    def __init__(self, real: ProcessGroup, ranks: Sequence[int], rank: int, door: Door) -> None:
        super().__init__(rank, len(ranks))  # type: ignore[call-arg]
        self.real = real
        self.ranks = tuple(ranks)
        self.door = door

    def through(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Work | None:
        """One call: written down, offered to the faults, made by the real group."""
        call = self._call(name, args, named)
        self.door.begin(call)
        _, inputs, outputs = METHODS[name]
        tensors = list(_tensors(args[inputs])) if inputs is not None else []
        results = list(_tensors(args[outputs])) if outputs is not None else []
        works: list[LateWork] = []

        def body(held: bool, flip_input: Any, flip_output: Any, afterwards: Any) -> Work:  # noqa: FBT001
            if flip_input is not None:
                _flip(tensors, flip_input)

            def issue() -> Work | None:
                made: Work | None = getattr(self.real, name)(*args, **named)
                if afterwards is not None:
                    afterwards()
                return made

            if not held and flip_output is None:
                work = issue()
                return work if work is not None else LateWork(lambda: None, results)
            changed = None if flip_output is None else (lambda: _flip(results, flip_output))
            late = LateWork(issue, results, changed)
            if held:
                works.append(late)
            else:
                late.go_out()
            return late

        plain = {"held": False, "flip_input": None, "flip_output": None, "afterwards": None}
        op = Operation(call.kind, call.rank, dist_size(), plain)
        work: Work | None = self.door.faults.perform(op, body)
        self.door.hold(call.kind, works)
        if work is None:  # dropped
            work = LateWork(lambda: None, results)
        return None if call.kind == "monitored_barrier" else work

    def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        kind, inputs, outputs = METHODS[name]
        rank = self.ranks[self.rank()]
        opts: Any = named.get("opts", args[-1] if args else None)
        peer = tag = ANY
        if kind in P2P:
            peer = self.ranks[args[1]] if name != "recv_anysource" else ANY
            tag = args[-1]
        line = (self.group_name, kind, peer, tag) if kind in P2P else (self.group_name,)
        code, lasti = stand_in(*user_frame_of(sys._getframe(2)))
        metas = [
            tuple(map(self.door.meta, _tensors(args[at]))) if at is not None else ()
            for at in (inputs, outputs)
        ]
        return Call(
            kind, rank, self.ranks, self.group_name, self.door.next_of(line),
            op=_reduce_op(opts), root=self.ranks[opts.rootRank] if kind in ROOTED else ANY, peer=peer,
            tag=max(tag, 0), inputs=metas[0], outputs=metas[1],
            splits=(tuple(args[3]), tuple(args[2])) if kind == "all_to_all_single" else ((), ()),
            async_op=bool(getattr(opts, "asyncOp", False)), code=code, lasti=lasti,
        )


def _method(name: str) -> Callable[..., Work | None]:
    def method(self: InterposedGroup, *args: Any, **named: Any) -> Work | None:
        return self.through(name, args, named)

    method.__name__ = name
    return method


for _name in METHODS:
    if hasattr(ProcessGroup, _name):
        setattr(InterposedGroup, _name, _method(_name))


def dist_size() -> int:
    """The world size that the rank was started with."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: one, a list, or lists of lists."""
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for one in value:
            yield from _tensors(one)


def _flip(tensors: Sequence[torch.Tensor], where: tuple[int, int]) -> None:
    """Flip one bit, counted from the highest, of one element of the first tensor that has any, below
    autograd. A bool has one bit."""
    element, bit = where
    tensor = next((one for one in tensors if one.numel()), None)
    if tensor is None:
        return
    index, at = element % tensor.numel(), tensor.storage_offset()
    for extent, step in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        index, digit = divmod(index, extent)
        at += digit * step
    size = tensor.element_size()
    bits = 1 if tensor.dtype == torch.bool else 8 * size
    byte, within = divmod(bits - 1 - bit % bits, 8)
    data = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    with torch.no_grad():
        data.set_(tensor.untyped_storage())
        data[at * size + byte] ^= 1 << within


def _reduce_op(opts: Any) -> str:
    """The name of a call's reduce op, "" where it has none."""
    op = getattr(opts, "reduceOp", None)
    return "" if op is None else str(getattr(op, "op", op)).rpartition(".")[2].lower()


def install(door: Door) -> None:
    """Have every process group that this process makes from now on pass through `door`."""
    wanted = [""]

    def creator(options: Any, backend_options: Any) -> InterposedGroup:
        ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        asked = door.backend or wanted[0] or dist.Backend.UNDEFINED
        return _made(options, backend_options, asked, ranks, door)

    dist.Backend.register_backend(BACKEND, creator, extended_api=True, devices=["cpu", "cuda"])
    make = distributed_c10d._new_process_group_helper
    meet = vars(distributed_c10d)["rendezvous"]
    signature = inspect.signature(make)

    def helper(*args: Any, **named: Any) -> Any:
        bound = signature.bind(*args, **named)
        given = bound.arguments
        asked = str(given["backend"])
        given["timeout"] = door.shortened(given.get("timeout"))
        wanted[0] = "" if asked == BACKEND else asked
        given["backend"] = dist.Backend(BACKEND)
        group, store = make(*bound.args, **bound.kwargs)
        if isinstance(group, InterposedGroup) and asked != BACKEND:
            world = distributed_c10d._world
            world.pg_map[group] = (asked, store)
            world.pg_backend_config[group] = str(dist.BackendConfig(dist.Backend(asked)))
        return group, store

    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **named: Any) -> Iterator[Any]:
        named["timeout"] = door.shortened(named.get("timeout"))
        met = meet(url, rank, world_size, **named)
        with no_dns() if door.near else contextlib.nullcontext():
            store = next(met)
        yield store
        yield from met

    vars(distributed_c10d)["_new_process_group_helper"] = helper
    vars(distributed_c10d)["rendezvous"] = rendezvous


def _made(
    options: Any, backend_options: Any, asked: str, ranks: list[int], door: Door
) -> InterposedGroup:
    """The real group, and the one that stands before it; both know the real backends by device."""
    rank, size = options.group_rank, options.group_size
    real = ProcessGroup(options.store, rank, size)
    group = InterposedGroup(real, ranks, rank, door)
    made: dict[str, Any] = {}
    for device, chosen in dist.BackendConfig(dist.Backend(asked)).get_device_backend_map().items():
        name = str(chosen).lower()
        if name not in BACKENDS:
            raise UsageError(f"backend: given {name!r}; allowed on real process groups: gloo, nccl")
        kind = getattr(ProcessGroup.BackendType, name.upper())
        if name not in made:
            made[name] = _backend(name, device, options, backend_options, ranks)
            door.kept.append(made[name])
            if len(made) == 1 or name == "nccl":
                real._set_default_backend(kind)
                group._set_default_backend(kind)
        for one in (real, group):
            one._register_backend(torch.device(device), kind, made[name])
    return group


def _backend(name: str, device: str, options: Any, backend_options: Any, ranks: list[int]) -> Any:
    """One real backend. Raises NotHere."""
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    store = PrefixStore(f"{device}/", options.store)
    if name == "gloo":
        backend: Any = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
        backend.options.global_ranks_in_group = ranks
        backend.options.group_name = options.group_id
    else:
        if not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise NotHere("backend nccl: it needs a CUDA device, and this machine has none")
        chosen = backend_options or dist.ProcessGroupNCCL.Options()
        chosen._timeout = timeout
        chosen.global_ranks_in_group, chosen.group_name = ranks, options.group_id
        backend = dist.ProcessGroupNCCL(store, rank, size, chosen)
    backend._set_sequence_number_for_group()
    if get_debug_level() == DebugLevel.DETAIL:
        backend = distributed_c10d._create_process_group_wrapper(
            wrapped_pg=backend, store_prefix=options.group_id, store=store, rank=rank, world_size=size,
            timeout=timeout,
        )
    return backend
