"""One operation of the rank that is running, on behalf of the user's line.

Kernels reach memory through these functions only. Each cuts a view into its stretches of adjacent
elements and performs one harness operation a stretch, offered to the plan's faults as rank.py's own are,
so that faults, schedules, races and reports apply as they do to any rank program.

Peers are numbered within the domain of the window that is reached (`Task.domain_of`); the world's number
is what the harness sees. Behind a write to peers comes the fence that PyPTO's compiler inserts
(`publish`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from sys import _getframe
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from harness.errors import PldRuleError, WrongDtype, WrongShape
from harness.fabric.frames import is_library
from harness.frontends.pypto.dfx import note
from harness.frontends.pypto.enums import AtomicType, Level, NotifyOp, WaitCmp
from harness.frontends.pypto.scalars import exact, scalar
from harness.frontends.pypto.values import Tile, View, WindowBuffer
from harness.rank import AtomicType as RankAtomic

if TYPE_CHECKING:
    from harness.fabric.simulated_rank import SimulatedRank
    from harness.frontends.pypto.recording import Recording

TASK: ContextVar[Task | None] = ContextVar("rankfault_pld_task", default=None)
HOST: ContextVar[Recording | None] = ContextVar("rankfault_pld_host", default=None)
_LIBRARY: dict[CodeType, bool] = {}
_LIBRARY_MAX = 4096


class Domain(NamedTuple):
    """A comm domain as one of its devices sees it. members: world ranks, by in-domain rank."""

    rank: int
    nranks: int
    members: tuple[int, ...]


class Task:
    """A dispatch that is running on a device.

    rank: the harness's. device: the logical one. level: of the function that runs, CHIP or CORE_GROUP.
    loops: of loops with carried values, the innermost last (ops.py). place: whatever tasks.py keeps.
    notified: peers, since the last fence.
    at: the user's line for what runs without any of the user's code, such as a builtin kernel.
    """

    __slots__ = ("at", "device", "level", "loops", "notified", "place", "rank")

    def __init__(self, rank: SimulatedRank, device: int) -> None:
        self.rank = rank
        self.device = device
        self.level = Level.CHIP
        self.loops: list[Any] = []
        self.notified: set[int] = set()
        self.place: Any = None
        self.at: tuple[CodeType | None, int] = (None, -1)

    def domain_of(self, view: View) -> Domain:
        """The domain whose window `view` is. Raises PldRuleError (`not_a_window`, `not_a_member`)."""
        return self.domain_of_buffer(view.buffer, view)

    def domain_of_buffer(self, buffer: WindowBuffer | None, what: object) -> Domain:
        """The same of a buffer."""
        if buffer is None:
            raise PldRuleError(
                "not_a_window",
                f"rank {self.device}: {what!r} is no DistributedTensor: peers cannot reach it",
            )
        members = buffer.members
        if self.device not in members:
            raise PldRuleError(
                "not_a_member",
                f"rank {self.device}: {what!r} belongs to the domain of devices {list(members)}",
            )
        return Domain(members.index(self.device), len(members), members)


def current() -> Task:
    """The task that is running. Raises PldRuleError (`device_only`) in host code and outside."""
    task = TASK.get()
    if task is None:
        where = "host code" if HOST.get() is not None else "ordinary Python, outside any pld function"
        raise PldRuleError("device_only", f"an operation of devices was called in {where}")
    return task


def recording() -> Recording:
    """The host call that is being recorded. Raises PldRuleError (`host_only`) in kernels and outside."""
    host = HOST.get()
    if host is None:
        where = "a kernel" if TASK.get() is not None else "ordinary Python, outside any pld function"
        raise PldRuleError("host_only", f"an operation of host code was called in {where}")
    return host


def on_host() -> bool:
    """Whether host code is running."""
    return HOST.get() is not None


def here() -> tuple[CodeType | None, int]:
    """The user's code and instruction that is calling."""
    frame = _getframe(1)
    while frame is not None:
        code = frame.f_code
        library = _LIBRARY.get(code)
        if library is None:
            if len(_LIBRARY) >= _LIBRARY_MAX:
                _LIBRARY.clear()
            library = _LIBRARY[code] = is_library(code.co_filename)
        if not library:
            return code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    task = TASK.get()
    return (None, -1) if task is None else task.at


def operate(kind: str, **args: Any) -> Any:
    """Perform one operation of the running rank: `rank.KIND(**args)`, at the user's line."""
    rank = current().rank
    rank._code, rank._lasti = here()
    body: Callable[..., Any] = getattr(rank, "_" + kind)
    return rank._offer(kind, body, **args) if rank._faults else body(**args)


def publish() -> None:
    """The fence that the compiler puts behind a write to a peer: after it everybody sees the write.

    It is quiet, not fence: whoever is told of the write may read it on any rank, not on the target alone.
    """
    current().notified.clear()
    operate("quiet")


def _peer(view: View, peer: Any) -> int:
    """The world's number of in-domain rank `peer`. Raises PldRuleError (`peer_outside_domain`)."""
    task = current()
    domain = task.domain_of(view)
    number = exact(peer)
    if not 0 <= number < domain.nranks:
        raise PldRuleError(
            "peer_outside_domain",
            f"rank {task.device}: peer {number} of {view!r} is outside its domain's ranks "
            f"0..{domain.nranks - 1}",
        )
    return domain.members[number]


# Own memory ---------------------------------------------------------------------------------------


def load(view: View) -> torch.Tensor:
    """A copy of one's own elements of `view`, in its shape."""
    parts = [operate("load", src=view.handle, at=at, shape=count) for at, count in view.runs()]
    return _joined(parts, view)


def store(view: View, value: torch.Tensor) -> None:
    """Write `value`, as many elements and of the same dtype, to one's own elements of `view`."""
    data = _fitting(view, value, "store")
    done = 0
    for at, count in view.runs():
        operate("store", dst=view.handle, value=data[done : done + count], at=at)
        done += count


def read(view: View) -> Any:
    """The scalar in a view of one element."""
    (at, _), = view.runs()
    data = operate("load", src=view.handle, at=at, shape=1)
    return scalar(data.item(), view.dtype)


def write(view: View, value: Any) -> None:
    """Write a scalar to a view of one element."""
    (at, _), = view.runs()
    if not view.dtype.floating and view.dtype.name != "BOOL":
        value = scalar(value, view.dtype)  # wraps
    data = torch.tensor([value], dtype=view.dtype.torch)
    operate("store", dst=view.handle, value=data, at=at)


def assign(view: View, value: Any) -> None:
    """`x[...] = value` of kernels: a tile, a tensor's elements or a scalar."""
    if isinstance(value, View):
        value = load(value)
    elif isinstance(value, Tile):
        value = value.real
    if isinstance(value, torch.Tensor):
        store(view, value)
    elif view.shape:
        store(view, torch.full(view.shape, value, dtype=view.dtype.torch))
    else:
        write(view, value)


def buffer(shape: tuple[int, ...], dtype: Any, name: str = "") -> View:
    """New memory of the running rank that no peer can reach."""
    held = operate("buffer", shape=shape, dtype=dtype.torch)
    note(current().rank, "heap", name=name, amount=held.numel * held.itemsize)
    return View(held.view((held.numel,), held.dtype), shape, dtype, name=name)


# Peers' memory ------------------------------------------------------------------------------------


def remote_load(view: View, peer: Any) -> torch.Tensor:
    """A copy of `peer`'s elements of `view`, in its shape."""
    number = _peer(view, peer)
    parts = [
        operate("remote_load", win=view.handle, peer=number, at=at, shape=count)
        for at, count in view.runs()
    ]
    return _joined(parts, view)


def remote_store(
    view: View, peer: Any, value: torch.Tensor, *, atomic: AtomicType | int = AtomicType.None_
) -> None:
    """Write `value` into `peer`'s elements of `view`; `publish` is the caller's."""
    number = _peer(view, peer)
    data = _fitting(view, value, "remote_store")
    done = 0
    for at, count in view.runs():
        operate(
            "remote_store", win=view.handle, peer=number, value=data[done : done + count], at=at,
            atomic=_atomic(atomic),
        )
        done += count


def put(
    dst: View, peer: Any, src: View, *, atomic: AtomicType | int = AtomicType.None_
) -> None:
    """Write one's own elements of `src` into `peer`'s of `dst`, which has as many; `publish` is the
    caller's."""
    number = _peer(dst, peer)
    for at, source, count in _paired(dst, src, "put"):
        held = src.handle.view((count,), src.handle.dtype, source * src.handle.itemsize)
        operate("put", dst=dst.handle, peer=number, src=held, at=at, atomic=_atomic(atomic))


def get(dst: View, peer: Any, src: View) -> None:
    """Fill one's own elements of `dst` with `peer`'s of `src`, which has as many."""
    number = _peer(src, peer)
    for source, at, count in _paired(src, dst, "get"):
        held = dst.handle.view((count,), dst.handle.dtype, at * dst.handle.itemsize)
        operate("get", dst=held, peer=number, src=src.handle, at=source)


def notify(cell: View, peer: Any, value: Any, *, op: NotifyOp | int) -> None:
    """Add to (or set) the one int32 element of `cell` at `peer`.

    A peer sees the notifies of one core in program order (upstream's all_to_all_v counts on it: nothing
    stands between its counts and its barrier). One's own cell has changed when it returns.
    """
    number = _peer(cell, peer)
    (at, _), = cell.runs()
    notified = current().notified
    if number in notified:
        notified.clear()
        operate("fence")
    notified.add(number)
    operate("notify", cell=cell.handle, peer=number, at=at, value=exact(value), op=NotifyOp(op))
    if number == current().device:
        publish()


def wait(cell: View, value: Any, *, cmp: WaitCmp | int) -> None:
    """Block until one's own int32 element of `cell` is as large as `value`, or equal."""
    current().domain_of(cell)
    (at, _), = cell.runs()
    operate("wait", cell=cell.handle, at=at, value=exact(value), cmp=WaitCmp(cmp), timeout=None)


def _atomic(atomic: AtomicType | int) -> RankAtomic | None:
    return RankAtomic.Add if atomic == AtomicType.Add else None


def _joined(parts: list[torch.Tensor], view: View) -> torch.Tensor:
    whole = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0)
    if whole.numel() != view.numel:  # a fault asked for another shape
        raise WrongShape(f"{whole.numel()} elements were loaded from {view!r}, which has {view.numel}")
    return whole.to(view.dtype.torch).reshape(view.shape)


def _fitting(view: View, value: torch.Tensor, what: str) -> torch.Tensor:
    """The elements of `value` in a row, if they are what `view` holds."""
    if value.dtype is not view.dtype.torch:
        raise WrongDtype(f"{what} of {str(value.dtype)[6:]} into {view!r}: cast it first")
    if value.numel() != view.numel:
        raise WrongShape(f"{what} of {list(value.shape)} into {view!r}: as many elements are due")
    return value.contiguous().reshape(-1)


def _paired(first: View, second: View, what: str) -> list[tuple[int, int, int]]:
    """(element of the first, of the second, how many) of stretches adjacent in both."""
    if first.dtype is not second.dtype and first.dtype.torch is not second.dtype.torch:
        raise WrongDtype(f"{what} between {first!r} and {second!r}: their types differ")
    if first.numel != second.numel:
        raise WrongShape(f"{what} between {first!r} and {second!r}: as many elements are due")
    left, right = first.runs(), second.runs()
    found = []
    while left and right:
        (a, n), (b, m) = left[0], right[0]
        count = min(n, m)
        found.append((a, b, count))
        left[0], right[0] = (a + count, n - count), (b + count, m - count)
        if not left[0][1]:
            left.pop(0)
        if not right[0][1]:
            right.pop(0)
    return found
