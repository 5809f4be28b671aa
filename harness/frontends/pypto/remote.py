"""What `pld.system`, `pld.tensor` and `pld.tile` are for one rank; collectives.py has the rest.

Windows (host code): world_size, alloc_window_buffer, window. Who and where: get_comm_ctx, rank, nranks.
Signals: notify, wait. Memory: put, get, remote_store, remote_load. Signatures and checks are PyPTO's
(reference/pypto.md 2.2, 2.3); each check that fails is a rule of rules.py.

A put is over when its bytes are at the peer and everybody sees them. Where it is cut into chunks, each
chunk is an operation of its own. Not modelled: staging tiles and their limits; with pipeline=True two
chunks are under way on the machine, here they follow each other as without it.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any, TypeVar

import torch

from harness.frontends.pypto import operate
from harness.frontends.pypto.dtypes import INT32, DataType
from harness.frontends.pypto.enums import AtomicType, NotifyOp, WaitCmp
from harness.frontends.pypto.operate import current, here, on_host, publish, recording
from harness.frontends.pypto.rules import broken, check_window
from harness.frontends.pypto.scalars import DeviceInt, exact, int32, scalar
from harness.frontends.pypto.values import Tile, View, WindowBuffer, WindowView, dims_of

_ATOMIC_ADD = frozenset(("FP32", "BF16", "FP16", "INT32", "INT16", "INT8"))
Mode = TypeVar("Mode", NotifyOp, WaitCmp, AtomicType)


# Windows ------------------------------------------------------------------------------------------


def world_size() -> int:
    """How many devices run the program; host code only. Raises PldRuleError (world_size_in_kernel)."""
    if not on_host() and operate.TASK.get() is not None:
        raise broken("world_size_in_kernel", "world_size() is called in a kernel")
    return recording().size


def alloc_window_buffer(size: Any, *, dtype: DataType | None = None, name: str = "") -> WindowBuffer:
    """A buffer of `size` bytes on every device of its domain; or of a shape's, with `dtype`.

    Raises PldRuleError (alloc_outside_host, wrong_alloc).
    """
    if not on_host():
        raise broken("alloc_outside_host", "alloc_window_buffer is called outside HOST code")
    if isinstance(size, list | tuple):
        if dtype is None:
            raise broken("wrong_alloc", f"alloc_window_buffer of shape {list(size)} needs dtype=")
        dims = dims_of(size)
        nbytes = dtype.get_byte()
        for extent in dims:
            nbytes *= extent
    else:
        if dtype is not None:
            raise broken("wrong_alloc", f"alloc_window_buffer of {size!r} bytes takes no dtype=")
        nbytes = exact(size)
    if nbytes <= 0:
        raise broken("wrong_alloc", f"alloc_window_buffer of {size!r}: {nbytes} bytes")
    return recording().alloc(nbytes, name or _assigned(*here()))


def window(buf: WindowBuffer, shape: Sequence[Any], *, dtype: DataType) -> WindowView:
    """The buffer as a DistributedTensor of `shape`.

    Raises PldRuleError (wrong_operand, byte_size, window_larger_than_buffer).
    """
    if not isinstance(buf, WindowBuffer):
        raise broken("wrong_operand", f"window of {buf!r}; it takes what alloc_window_buffer gave")
    dims = dims_of(shape)
    check_window(buf.name, buf.nbytes, dims, dtype.get_byte(), recording().size)
    return WindowView(buf, dims, dtype)


@functools.lru_cache(maxsize=1024)
def _assigned(code: CodeType | None, lasti: int) -> str:
    """The variable that the call at `lasti` is assigned to; empty if it is no plain one."""
    if code is None:
        return ""
    following = (one for one in dis.get_instructions(code) if one.offset > lasti)
    stored = next((one for one in following if one.opname not in ("CACHE", "NOP", "COPY")), None)
    return str(stored.argval) if stored is not None and stored.opname.startswith("STORE_") else ""


# Who and where ------------------------------------------------------------------------------------


class CommCtx:
    """What `get_comm_ctx` gives: the domain of a window, of which a kernel asks its rank."""

    __slots__ = ("of",)

    def __init__(self, of: View | WindowView) -> None:
        self.of = of


def get_comm_ctx(dist_tensor: Any) -> CommCtx:
    """The domain of a window. Raises PldRuleError (not_a_window)."""
    if isinstance(dist_tensor, WindowView):
        return CommCtx(dist_tensor)
    return CommCtx(_window("get_comm_ctx", dist_tensor))


def rank(ctx: CommCtx) -> DeviceInt:
    """The running rank's number in the domain."""
    return int32(_domain("rank", ctx).rank)


def nranks(ctx: CommCtx) -> DeviceInt:
    """How many ranks the domain has."""
    return int32(_domain("nranks", ctx).nranks)


def _domain(what: str, ctx: Any) -> operate.Domain:
    task = current()
    if not isinstance(ctx, CommCtx):
        raise broken("wrong_operand", f"{what} of {ctx!r}; it takes what get_comm_ctx gave")
    return task.domain_of_buffer(ctx.of.buffer, ctx.of)


def _window(what: str, value: Any) -> View:
    """`value` if peers can reach it. Raises PldRuleError (device_only, not_a_window)."""
    current()
    if not isinstance(value, View) or not value.is_window:
        raise broken("not_a_window", f"{what} of {value!r}, which is no DistributedTensor")
    return value


# Signals ------------------------------------------------------------------------------------------


def notify(target: Any, peer: Any, offsets: Sequence[Any], value: Any, *, op: Any) -> None:
    """Add `value` to (or set) one cell of `peer`'s part of `target`; it arrives later.

    Raises PldRuleError (not_a_window, wrong_dtype, offset_rank, wrong_mode, peer_outside_domain).
    """
    cell = signal_cell("notify", target, offsets)
    operate.notify(cell, peer, int(scalar(value, INT32)), op=_mode("notify", NotifyOp, op))


def wait(signal: Any, offsets: Sequence[Any], expected: Any, *, cmp: Any) -> None:
    """Block until one's own cell of `signal` is as large as `expected`, or equal; it stays as it is.

    Raises PldRuleError (not_a_window, wrong_dtype, offset_rank, wrong_mode).
    """
    cell = signal_cell("wait", signal, offsets)
    operate.wait(cell, int(scalar(expected, INT32)), cmp=_mode("wait", WaitCmp, cmp))


def signal_cell(what: str, signal: Any, offsets: Any) -> View:
    """One cell of a signal."""
    view = _window(what, signal)
    if view.dtype.name != "INT32":
        raise broken("wrong_dtype", f"{what} on {view!r}: a signal is INT32")
    return view.cell(offsets)


def _mode(what: str, modes: type[Mode], given: Any) -> Mode:
    try:
        return modes(given)
    except ValueError:
        allowed = " or ".join(f"pld.{modes.__name__}.{mode.name}" for mode in modes)
        raise broken("wrong_mode", f"{what} with {given!r}; choose {allowed}") from None


# Memory -------------------------------------------------------------------------------------------


def put(
    dst: Any, peer: Any, src: Any, dst_offsets: Any = None, src_offsets: Any = None, shape: Any = None,
    *, atomic: Any = AtomicType.None_, chunk_rows: int = 0, chunk_cols: int = 0, pipeline: bool = False,
) -> None:
    """Write one's own `src`, or a region of it, into `peer`'s `dst`.

    Raises PldRuleError (not_a_window, wrong_operand, incomplete_region, wrong_shape, wrong_dtype,
    wrong_chunk, pipeline_without_chunks, atomic_dtype, peer_outside_domain).
    """
    _check_chunks("put", chunk_rows, chunk_cols, pipeline=pipeline)
    target, source = _window("put", dst), _memory("put", src)
    target, source = _regions("put", target, source, dst_offsets, src_offsets, shape)
    mode = _atomic("put", target, atomic)
    for at, extents in pieces(target.shape, chunk_rows, chunk_cols):
        operate.put(target.region(at, extents), peer, source.region(at, extents), atomic=mode)
    publish()


def get(
    dst: Any, peer: Any, src: Any, dst_offsets: Any = None, src_offsets: Any = None, shape: Any = None,
    *, chunk_rows: int = 0, chunk_cols: int = 0, pipeline: bool = False,
) -> None:
    """Read `peer`'s `src`, or a region of it, into one's own `dst`. Raises as `put`."""
    _check_chunks("get", chunk_rows, chunk_cols, pipeline=pipeline)
    source, target = _window("get", src), _memory("get", dst)
    target, source = _regions("get", target, source, dst_offsets, src_offsets, shape)
    for at, extents in pieces(target.shape, chunk_rows, chunk_cols):
        operate.get(target.region(at, extents), peer, source.region(at, extents))


def remote_store(
    src: Any, target: Any, peer: Any, offsets: Sequence[Any], *, atomic: Any = AtomicType.None_
) -> None:
    """Write a core's value into a region of `peer`'s `target`, as large as the value.

    Raises PldRuleError (not_a_window, wrong_operand, wrong_shape, wrong_dtype, atomic_dtype,
    offset_rank, peer_outside_domain).
    """
    view = _window("remote_store", target)
    if isinstance(src, View) and not src.is_window:
        src = Tile(operate.load(src), dtype=src.dtype)
    if not isinstance(src, Tile):
        raise broken("wrong_operand", f"remote_store of {src!r}; put moves windows into windows")
    real = src.real
    if len(view.shape) < 2 or any(extent != 1 for extent in real.shape[:-2]):
        raise broken("wrong_shape", f"remote_store of {src!r} into {view!r}: rows and columns are due")
    if real.dtype is not view.dtype.torch:
        raise broken("wrong_dtype", f"remote_store of {src!r} into {view!r}")
    rows = (1, 1, *real.shape)[-2:]
    region = view.region(offsets, (1,) * (len(view.shape) - 2) + tuple(rows))
    operate.remote_store(region, peer, real, atomic=_atomic("remote_store", view, atomic))
    publish()


def remote_store_tile(
    src_tile: Any, target: Any, peer: Any, offsets: Sequence[Any], *, atomic: Any = AtomicType.None_
) -> None:
    """`pld.tile.remote_store`: the same under the name that its operand has there."""
    remote_store(src_tile, target, peer, offsets, atomic=atomic)


def remote_load(
    target: Any, peer: Any, offsets: Sequence[Any], shape: Sequence[Any], valid_shape: Any = None
) -> Tile:
    """A tile of `shape` with a region of `peer`'s `target`; only `valid_shape` of it is real data.

    Raises PldRuleError (not_a_window, offset_rank, wrong_shape, peer_outside_domain) and OutOfBounds.
    """
    view = _window("remote_load", target)
    extents = dims_of(shape)
    if valid_shape is None:
        return Tile(operate.remote_load(view.region(offsets, extents), peer), dtype=view.dtype)
    valid = dims_of(valid_shape)
    if len(valid) != len(extents) or any(v > n for v, n in zip(valid, extents, strict=True)):
        raise broken(
            "wrong_shape", f"remote_load of shape {list(extents)} with valid_shape {list(valid)}"
        )
    data = torch.zeros(extents, dtype=view.dtype.torch)
    held = operate.remote_load(view.region(offsets, valid), peer)
    data[tuple(slice(0, extent) for extent in valid)] = held
    return Tile(data, valid, view.dtype)


def pieces(
    shape: Sequence[int], chunk_rows: int, chunk_cols: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Offsets and extents of the chunks of a transfer, in order; rows are the last axis but one."""
    *leading, rows, cols = (1, 1, *shape) if len(shape) < 2 else shape
    high, wide = min(chunk_rows or rows, rows), min(chunk_cols or cols, cols)
    if not (high and wide) or (high == rows and wide == cols):
        if all(shape):
            yield (0,) * len(shape), tuple(shape)
        return
    for block in _indexes(leading):
        for row in range(0, rows, high):
            for col in range(0, cols, wide):
                at = (*block, row, col)
                extents = (*(1 for _ in block), min(high, rows - row), min(wide, cols - col))
                yield at[-len(shape):], extents[-len(shape):]


def _indexes(extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not extents:
        yield ()
        return
    for first in range(extents[0]):
        for rest in _indexes(extents[1:]):
            yield (first, *rest)


def _check_chunks(what: str, rows: Any, cols: Any, *, pipeline: bool) -> None:
    for name, value in (("chunk_rows", rows), ("chunk_cols", cols)):
        if type(value) is not int or value < 0:
            raise broken("wrong_chunk", f"{what} with {name}={value!r}; an int is due, 0 for all")
    if pipeline and not (rows and cols):
        raise broken(
            "pipeline_without_chunks",
            f"{what} with pipeline=True, chunk_rows={rows} and chunk_cols={cols}; both must be above 0",
        )


def _memory(what: str, value: Any) -> View:
    """`value` if it is memory of the rank, a window or not."""
    if not isinstance(value, View):
        raise broken("wrong_operand", f"{what} of {value!r}; it moves memory, a Tensor or a window")
    return value


def _atomic(what: str, target: View, atomic: Any) -> AtomicType:
    mode = _mode(what, AtomicType, atomic)
    if mode == AtomicType.Add and target.dtype.name not in _ATOMIC_ADD:
        raise broken("atomic_dtype", f"{what} with AtomicType.Add into {target!r}")
    return mode


def _regions(
    what: str, dst: View, src: View, dst_offsets: Any, src_offsets: Any, shape: Any
) -> tuple[View, View]:
    """The regions of a transfer: of one shape and dtype."""
    if dst.dtype.torch is not src.dtype.torch:
        raise broken("wrong_dtype", f"{what} from {src!r} to {dst!r}: their dtypes differ")
    if len(dst.shape) != len(src.shape):
        raise broken("wrong_shape", f"{what} from {src!r} to {dst!r}: their ranks differ")
    given = [part is not None for part in (dst_offsets, src_offsets, shape)]
    if any(given) and not all(given):
        raise broken("incomplete_region", f"{what} without all of dst_offsets, src_offsets and shape")
    if any(given):
        return dst.region(dst_offsets, shape), src.region(src_offsets, shape)
    if dst.shape != src.shape:
        raise broken("wrong_shape", f"{what} from {src!r} to {dst!r}: their shapes differ")
    return dst, src


NAMES = {
    "system.world_size": world_size, "world_size": world_size,
    "tensor.alloc_window_buffer": alloc_window_buffer, "alloc_window_buffer": alloc_window_buffer,
    "tensor.window": window, "window": window,
    "system.get_comm_ctx": get_comm_ctx, "get_comm_ctx": get_comm_ctx, "CommCtx": CommCtx,
    "system.rank": rank, "rank": rank, "system.nranks": nranks, "nranks": nranks,
    "system.notify": notify, "system.wait": wait, "tensor.put": put, "tensor.get": get,
    "tensor.remote_store": remote_store, "tile.remote_store": remote_store_tile,
    "remote_store": remote_store, "tile.remote_load": remote_load, "remote_load": remote_load,
}
