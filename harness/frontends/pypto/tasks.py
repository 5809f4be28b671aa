"""`pl`'s tasks: submitted kernels, scopes, deferred waits, and what a task asks about itself.

    out, tid = pl.submit(self.kernel, x, out, deps=[other])

A kernel that orchestration calls or submits is a task, where the device has cores (regions.py says when,
and which edges it has). Its result stands for what it writes.

Not modelled: `allow_early_resolve=`.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.errors import NotSimulated, PldRuleError
from harness.frontends.pypto.cores import CONDITIONS_MAX, CORES, Job, Place
from harness.frontends.pypto.effects import effects_of, named_in
from harness.frontends.pypto.enums import Level, Role, ScopeMode, WaitCmp
from harness.frontends.pypto.operands import Later, view_of
from harness.frontends.pypto.operate import Task, current, here, on_host, operate, publish, wait
from harness.frontends.pypto.predicates import NEVER, Gate, gate_of
from harness.frontends.pypto.regions import (
    BLOCK,
    NoDep,
    Promised,
    TaskId,
    as_block,
    submitted,
)
from harness.frontends.pypto.scalars import exact, int32
from harness.frontends.pypto.values import View
from harness.frontends.pypto.written import Uses


def submit(function: Any, *args: Any, deps: Any = None, **options: Any) -> tuple[Any, ...]:
    """`pl.submit(self.kernel, …, deps=)`: the kernel's results, then its task."""
    return _submit(function, args, deps, 1, options)


def task_dummy(*, deps: Any = None) -> TaskId:
    """`pl.system.task_dummy(deps=)`: a task without work, which has ended when those have."""
    if on_host():
        raise PldRuleError("device_only", "pl.system.task_dummy in host code")
    place: Place | None = current().place
    if place is None or place.job is not None:
        return TaskId(None)
    return TaskId(submitted(place, "task_dummy", lambda _block: {}, [], deps, gate=NEVER))


def spmd_submit(
    function: Any, *args: Any, core_num: Any, deps: Any = None, **options: Any
) -> tuple[Any, ...]:
    """The same on `core_num` cores."""
    return _submit(function, args, deps, exact(core_num), options)


def _submit(
    function: Any, args: tuple[Any, ...], deps: Any, blocks: int, options: dict[str, Any]
) -> tuple[Any, ...]:
    from harness.frontends.pypto.functions import returned

    if on_host():
        raise PldRuleError("device_only", "pl.submit in host code: call the chip's function with device=")
    called, owner = getattr(function, "function", function), getattr(function, "owner", None)
    if not hasattr(called, "annotations") or not hasattr(called, "body"):
        raise PldRuleError("submit", f"pl.submit of {function!r}: a kernel, self.NAME, is due")
    free = [one.value for one in args if isinstance(one, NoDep)]
    values = called.ordered(tuple(one.value if isinstance(one, NoDep) else one for one in args), {})
    job, result = run_kernel(
        current(), called, owner, values, deps=deps, free=free, blocks=blocks,
        together=bool(options.get("sync_start")), gate=gate_of(options),
    )
    if str(called.returns) == "<class 'inspect._empty'>" or called.returns is None:
        return (TaskId(job),)
    results = result if isinstance(result, tuple) else (result,)
    if job is not None and any(one is None for one in results):
        results = tuple(returned(called, values)) if len(results) > 1 else results
    return *results, TaskId(job)


def run_kernel(
    task: Task, function: Any, owner: Any, values: list[Any], *, deps: Any = None,
    free: Sequence[Any] = (), blocks: int = 1, together: bool = False, gate: Gate | None = None,
) -> tuple[Job | None, Any]:
    """A kernel called by orchestration: a task where there are cores, else run at once; and its result.

    The result is what the kernel returns of its arguments; where its source does not tell, what it
    writes, as its return annotation picks it; a kernel that returns anything else is waited for.
    """
    from harness.frontends.pypto.functions import returned, run_inline

    place: Place | None = task.place
    if place is None or place.job is not None:
        result = None
        for block in range(0 if gate is not None and not gate.holds() else blocks):
            with as_block(block, blocks):
                result = run_inline(task, function, owner, list(values))
        return None, result
    effects = effects_of(function, owner)
    uses: Uses = [
        (value, direction != "out", direction != "in")
        for value, direction in zip(values, effects.directions, strict=True)
        if isinstance(value, View) and not any(value is one for one in free)
    ]
    promised = [value.job for value in values if isinstance(value, Promised)]

    def body(_block: int) -> Any:
        given = [v.get() if isinstance(v, Later) else v for v in values]
        return {"": run_inline(current(), function, owner, given)}

    job = submitted(
        place, function.name, body, uses, deps, promised, blocks=blocks, together=together, gate=gate
    )
    if effects.results is not None:
        results = [values[index] for index in effects.results]
        return job, results[0] if len(results) == 1 else tuple(results)
    if function.written:
        return job, returned(function, values)
    return job, Promised(place.cores, job, "")


def makes_tasks(function: Any, owner: Any) -> bool:
    """Whether a function, or one of the program's that it calls, holds a region, submits a kernel or
    calls more than one: with a single one there is nothing to be ordered."""
    return _kernels(function, owner, set()) > 1


def _kernels(function: Any, owner: Any, within: set[int]) -> int:
    """How many tasks a function makes, two for many. within: the functions that are calling it."""
    if function.kind == "incore":
        return 1
    if function.has_tasks:
        return 2
    code = function.body.__code__
    rounds = [
        (one.argval, one.offset) for one in dis.get_instructions(code)
        if one.opname.startswith("JUMP_BACKWARD")
    ]
    found = 0
    for one in dis.get_instructions(code):
        if not one.opname.startswith("LOAD_") or not isinstance(one.argval, str):
            continue
        for other in (named_in(function.body, one.argval), vars(type(owner)).get(one.argval)):
            if hasattr(other, "has_tasks") and id(other) not in within:
                many = any(first <= one.offset <= last for first, last in rounds)
                found += _kernels(other, owner, within | {id(function)}) * (2 if many else 1)
    return min(found, 2)


# Names of pl --------------------------------------------------------------------------------------


@contextmanager
def at(level: Level, role: Role | None = None, **_options: Any) -> Iterator[TaskId]:
    """A region of a function whose source is not to be had: it runs in place."""
    if on_host():
        raise PldRuleError("device_only", "pl.at in host code whose source is not to be had")
    task = current()
    before, task.level = task.level, level
    try:
        yield TaskId(None)
    finally:
        task.level = before


class spmd:
    """The same of `pl.spmd(n)`, of which only `for` can run a body n times."""

    def __init__(self, core_num: Any, **_options: Any) -> None:
        self._count = exact(core_num)

    def __iter__(self) -> Iterator[Any]:
        for block in range(self._count):
            with as_block(block, self._count):
                yield int32(block)

    def __enter__(self) -> TaskId:
        raise NotSimulated("`with pl.spmd(n)` needs the function's source, which is not to be had")

    def __exit__(self, *_error: object) -> None:
        return None


def split_aiv(n: Any, *, mode: Any = None) -> Iterator[Any]:
    """The same of `pl.split_aiv`: one lane after the other."""
    return iter([int32(lane) for lane in range(exact(n))])


@contextmanager
def manual_scope() -> Iterator[None]:
    """Tasks submitted in it have the edges of `deps=` only. Raises PldRuleError when nested."""
    place = None if on_host() else current().place
    if place is None:
        yield
        return
    if place.manual:
        raise PldRuleError("nested_scope", "pl.manual_scope() inside pl.manual_scope()")
    place.manual += 1
    try:
        yield
    finally:
        place.manual -= 1


@contextmanager
def scope(mode: ScopeMode = ScopeMode.AUTO) -> Iterator[None]:
    """A scope of a mode; that of edges is `ScopeMode.MANUAL`."""
    if mode is ScopeMode.MANUAL:
        with manual_scope():
            yield
        return
    place = None if on_host() else current().place
    if place is not None and place.manual:
        raise PldRuleError("nested_scope", "pl.scope() inside pl.manual_scope()")
    yield


@contextmanager
def cluster(*, name_hint: str = "") -> Iterator[None]:
    """Kernels that share a physical cluster; it changes nothing here."""
    yield


def no_dep(tensor: Any) -> Any:
    """An argument of a submitted kernel that makes no edges."""
    return NoDep(tensor) if isinstance(tensor, View) else tensor


def dump_tag(tensor: Any) -> Any:
    """Marks a tensor for the runtime's dumps; here for nothing."""
    return tensor


def hint(*_args: Any, **_options: Any) -> None:
    """A wish of the program's to the compiler."""


def defer_wait(signal: Any, offsets: Any, expected: Any, *, cmp: Any) -> None:
    """The task that is running ends only when its own `signal[offsets]` is as large as `expected`.

    Its core is free from the end of its body on. The comparison is unsigned. Raises PldRuleError.
    """
    if cmp != WaitCmp.Ge:
        raise PldRuleError("defer_wait", "pld.system.defer_wait compares with pld.WaitCmp.Ge only")
    view = view_of(signal, "defer_wait")
    task = current()
    task.domain_of(view)
    cell = view.cell(offsets)
    value = exact(expected)
    if value < 0:
        raise PldRuleError(
            "defer_wait_unsigned", f"pld.system.defer_wait for {value}: it compares unsigned numbers"
        )
    place: Place | None = task.place
    if place is None or place.job is None:
        wait(cell, value, cmp=WaitCmp.Ge)
        return
    if len(place.job.conditions) >= CONDITIONS_MAX:
        raise PldRuleError("defer_wait", f"{place.job!r} defers more than {CONDITIONS_MAX} waits")
    place.job.conditions.append((cell, value, here()))


def get_block_idx() -> Any:
    """Which block of its task is running."""
    block = BLOCK.get()
    if block is not None:
        return int32(block[0])
    place: Place | None = current().place
    return int32(0 if place is None else place.block)


def get_block_num() -> Any:
    """How many blocks the running task has."""
    block = BLOCK.get()
    if block is not None:
        return int32(block[1])
    place: Place | None = current().place
    return int32(1 if place is None or place.job is None else place.job.blocks)


def get_subblock_idx() -> Any:
    """Which of the two vector cores of its group is running."""
    place: Place | None = current().place
    return int32(0 if place is None else place.lane)


def available_aiv_count() -> Any:
    """How many vector cores the device has."""
    return int32(CORES)


def available_cluster_count() -> Any:
    """How many core groups the device has."""
    return int32(CORES // 2)


def fence() -> None:
    """What this core wrote to peers is there when this returns."""
    operate("quiet")


def cacheinvalid(*_region: Any) -> None:
    """Publish what this core wrote."""
    publish()
