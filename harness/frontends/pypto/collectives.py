"""`pld.tensor.*` collectives: what a call must be, and where it runs.

In a kernel a call is its sequence of operations there and then (composites.py). In HOST code it is one
builtin dispatch for each device of the windows' domain. Each returns the window that it fills. What the
compiler or the builtin kernels ask for are rules (rules.py); the domain of a call of HOST code is known
only when all of it is recorded, so rules about the number of ranks are checked on the devices.
"""

from __future__ import annotations

import itertools
from typing import Any

from harness.frontends.pypto import composites
from harness.frontends.pypto.composites import CHUNK_BYTES, TILE_ELEMENTS
from harness.frontends.pypto.dtypes import INT32
from harness.frontends.pypto.enums import ReduceOp
from harness.frontends.pypto.operate import current, on_host, recording
from harness.frontends.pypto.rules import broken
from harness.frontends.pypto.scalars import exact
from harness.frontends.pypto.values import Tile, View, WindowView

HOST_RANKS_MAX = 16  # beyond it the builtin kernels return without a word
_MISSING: Any = object()
_REDUCED = ("FP16", "FP32")


def barrier(signal: Any) -> Any:
    """Return when all ranks of the signal's domain have come."""
    _run("barrier", composites.barrier, {"signal": signal})
    return signal


def broadcast(target: Any, signal: Any, *, root: Any) -> Any:
    """Every rank's `target` becomes the root's. The root may stage again only when all have read."""
    number = exact(root)
    if number < 0:
        raise broken("peer_outside_domain", f"broadcast with root={number}")
    tile = TILE_ELEMENTS if on_host() else 0
    _run("broadcast", composites.broadcast, {"target": target, "signal": signal}, root=number, tile=tile)
    return target


def allgather(local_data: Any, target: Any, signal: Any) -> Any:
    """Row r of `target` becomes rank r's `local_data`."""
    operands = {"local_data": local_data, "target": target, "signal": signal}
    _run("allgather", composites.allgather, operands)
    return target


def all_to_all(input: Any, target: Any, signal: Any) -> Any:
    """Row r of `target` becomes row `me` of rank r's `input`."""
    _run("all_to_all", composites.all_to_all, {"input": input, "target": target, "signal": signal})
    return target


def all_to_all_v(input: Any, target: Any, signal: Any, send_counts: Any, recv_counts: Any) -> Any:
    """The same with blocks of rows, of which `recv_counts[r]` are real afterwards."""
    _run(
        "all_to_all_v", composites.all_to_all_v,
        {"input": input, "target": target, "signal": signal, "send_counts": send_counts,
         "recv_counts": recv_counts},
    )
    return target


def reduce_scatter(target: Any, signal: Any, *, op: Any = ReduceOp.Sum) -> Any:
    """Row `me` of `target` becomes the sum of everybody's row `me`."""
    if _reduction("reduce_scatter", op) != ReduceOp.Sum:
        raise broken("unsupported_collective", f"reduce_scatter with {ReduceOp(op).name}; it only sums")
    _run("reduce_scatter", composites.reduce_scatter, {"target": target, "signal": signal})
    return target


def allreduce(
    target: Any, signal: Any = _MISSING, *, op: Any = ReduceOp.Sum, mode: str = "mesh", core_num: int = 1
) -> Any:
    """Every rank's `target` becomes the reduction of all.

    signal: HOST code may leave it out with mode="mesh". core_num: blocks a rank, HOST code only.
    """
    how = _reduction("allreduce", op)
    if mode not in ("mesh", "ring"):
        raise broken("wrong_mode", f'allreduce with mode={mode!r}; choose "mesh" or "ring"')
    if type(core_num) is not int or core_num < 1:
        raise broken("unsupported_collective", f"allreduce with core_num={core_num!r}; an int above 0")
    if core_num > 1 and (mode == "ring" or not on_host()):
        raise broken("unsupported_collective", f"core_num={core_num}: only a mesh of HOST code has it")
    _window("allreduce", "target", target)
    if target.dtype.name not in _REDUCED:
        raise broken("unsupported_collective", f"allreduce of {target!r}; it reduces FP16 and FP32")
    if signal is _MISSING:
        if not on_host() or mode == "ring":
            raise broken("missing_signal", f"allreduce without a signal, mode={mode!r}")
        signal = _signal(core_num)
    operands = {"target": target, "signal": signal}
    if mode == "mesh":
        chunk = TILE_ELEMENTS if on_host() else CHUNK_BYTES // target.dtype.get_byte()
        _run("allreduce", composites.allreduce_mesh, operands, op=how, chunk=chunk, core_num=core_num)
    elif on_host():
        if how != ReduceOp.Sum or target.dtype.name != "FP32":
            raise broken("unsupported_collective", f"ring allreduce on the host: {how.name}, {target!r}")
        _run("allreduce_ring", composites.allreduce_host_ring, operands, op=how, chunk=TILE_ELEMENTS)
    else:
        chunk = CHUNK_BYTES // target.dtype.get_byte()
        _run("allreduce_ring", composites.allreduce_ring, operands, op=how, chunk=chunk)
    return target


def _signal(core_num: int) -> WindowView:
    """The signal that the compiler makes for an all-reduce without one."""
    host = recording()
    made = host.alloc(host.size * core_num * INT32.get_byte(), "allreduce_signal")
    return WindowView(made, (host.size, core_num), INT32)


def _reduction(name: str, op: Any) -> ReduceOp:
    try:
        return ReduceOp(op)
    except ValueError:
        raise broken("wrong_mode", f"{name} with op={op!r}; choose a pld.ReduceOp") from None


# Checks and routing -------------------------------------------------------------------------------


def _run(name: str, sequence: Any, operands: dict[str, Any], **named: Any) -> None:
    """Check the operands; run the sequence here, or queue it for every device of the domain."""
    signal = operands["signal"]
    for role in ("signal", "target", "recv_counts"):
        if role in operands:
            _window(name, role, operands[role])
    for role in ("signal", "send_counts", "recv_counts"):
        if role in operands and operands[role].dtype.name != "INT32":
            raise broken("wrong_dtype", f"{name}: {role} {operands[role]!r} must be INT32")
    _check_distinct(name, operands)
    _check_layout(name, signal)
    if on_host():
        for role, value in operands.items():
            _window(name, role, value)
        recording().collective(name, _Builtin(name, sequence), *operands.values(), **named)
        return
    _check_shapes(name, operands, named, rows_more=0)
    sequence(*operands.values(), **named)


class _Builtin:
    """A builtin kernel of HOST collectives: what the compiler could not check, then the sequence."""

    def __init__(self, name: str, sequence: Any) -> None:
        self.name = name
        self.sequence = sequence

    def __call__(self, *views: View, **named: Any) -> None:
        """Run on one device. views: in the order of the sequence's parameters."""
        roles = self.sequence.__code__.co_varnames[: len(views)]
        operands = dict(zip(roles, views, strict=True))
        nranks = current().domain_of(operands["signal"]).nranks
        if nranks > HOST_RANKS_MAX:
            raise broken(
                "silent_return",
                f"{self.name} of HOST code with {nranks} ranks returns undone; {HOST_RANKS_MAX} at most",
            )
        ring = self.sequence is composites.allreduce_host_ring
        if ring and operands["target"].numel % nranks:
            raise broken(
                "silent_return",
                f"ring allreduce of HOST code returns undone: {operands['target']!r} has no multiple of "
                f"{nranks} elements",
            )
        _check_shapes(self.name, operands, named, rows_more=int(ring))
        self.sequence(*views, **named)


def _window(name: str, role: str, value: Any) -> None:
    is_window = isinstance(value, WindowView) or (isinstance(value, View) and value.is_window)
    if not is_window:
        raise broken("not_a_window", f"{name}: {role} is {value!r}, no DistributedTensor")


def _check_distinct(name: str, operands: dict[str, Any]) -> None:
    """No two windows of a call over one allocation."""
    held = [
        (role, value.buffer) for role, value in operands.items()
        if isinstance(value, View | WindowView) and value.buffer is not None
    ]
    for (one, first), (other, second) in itertools.combinations(held, 2):
        if first is second:
            raise broken("shared_buffer", f"{name}: {one} and {other} are both over {first!r}")


def _check_layout(name: str, signal: Any) -> None:
    """No buffer counts both ways."""
    layout = "ring" if name == "allreduce_ring" else "mesh"
    before, signal.buffer.layout = signal.buffer.layout or layout, layout
    if before != layout:
        raise broken(
            "mesh_and_ring_signal",
            f"{name} counts in {signal!r}, in which a collective has counted as {before} before",
        )


def _check_shapes(
    name: str, operands: dict[str, Any], named: dict[str, Any], *, rows_more: int
) -> None:
    """Shapes against the number of ranks of the domain. Runs on a device.

    rows_more: rows of a ring's signal beside one a round.
    """
    task = current()
    signal = operands["signal"]
    domain = task.domain_of(signal)
    nranks = domain.nranks
    for role, value in operands.items():
        if isinstance(value, View) and value.is_window and task.domain_of(value) != domain:
            raise broken(
                "different_domains", f"{name}: {role} and signal belong to different sets of devices"
            )
    if "root" in named and named["root"] >= nranks:
        raise broken("peer_outside_domain", f"{name} with root={named['root']} of {nranks} ranks")
    rows = nranks
    if name == "allreduce_ring":
        rows = 2 * (nranks - 1) + rows_more
    wide = nranks if name == "allreduce_ring" else named.get("core_num", 1)
    shape = signal.shape if len(signal.shape) > 1 else (*signal.shape, 1)
    if nranks > 1 and (len(shape) != 2 or shape[0] < rows or shape[1] < wide):
        raise broken(
            "signal_shape", f"{name} of {nranks} ranks counts in [{rows}, {wide}], given {signal!r}"
        )
    _check_rows(name, operands, nranks)


def _check_rows(name: str, operands: dict[str, Any], nranks: int) -> None:
    """The data of the collectives that move rows."""
    target = operands.get("target")
    source = operands.get("input", operands.get("local_data"))
    if name not in ("allgather", "all_to_all", "all_to_all_v", "reduce_scatter"):
        return
    assert target is not None
    text = f"{name} of {nranks} ranks: target {target!r}"
    if len(target.shape) != 2 or target.shape[0] % nranks or not target.shape[0]:
        raise broken("wrong_shape", f"{text}; a multiple of {nranks} rows is due")
    if source is None:
        return
    if source.dtype.torch is not target.dtype.torch:
        raise broken("wrong_dtype", f"{text}, source {source!r}: their dtypes differ")
    numel = source.data.numel() if isinstance(source, Tile) else source.numel
    due = target.shape[-1] if name == "allgather" else target.numel
    if numel != due:
        raise broken("wrong_shape", f"{text}, source {source!r}: {due} elements are due")


NAMES = {
    f"tensor.{one.__name__}": one
    for one in (
        barrier, broadcast, allgather, all_to_all, all_to_all_v, reduce_scatter, allreduce,
    )
}
