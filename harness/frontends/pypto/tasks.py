"""`pl`'s tasks: regions, submitted kernels, scopes, deferred waits.

A region (`with pl.at(...)`, `with pl.spmd(n)`, …; rewriting.py makes a function of it) or a submitted kernel
is a task of the device: it runs on a core (cores.py) after the tasks it has edges to. Edges are what
`deps=` says and, outside `pl.manual_scope()`, what the uses of memory say: who reads or writes comes after
who wrote, never a writer after a reader. What a region uses is read off its statements (directions.py),
what a kernel uses off its parameters.

Where a device was given no cores (no file of the program holds a region), and inside a task, a region runs
at once, in place.

Not modelled: `predicate=`, `allow_early_resolve=`; the modes of `pl.split_aiv` that halve tiles; a region's
way through the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from harness.errors import NotSimulated, PldRuleError, WrongArgument
from harness.frontends.pypto import ops
from harness.frontends.pypto.cores import CONDITIONS_MAX, CORES, Cores, Job, Place
from harness.frontends.pypto.enums import Level, Role, ScopeMode, SplitMode, WaitCmp
from harness.frontends.pypto.operate import (
    Task,
    current,
    here,
    on_host,
    operate,
    publish,
    recording,
    wait,
)
from harness.frontends.pypto.scalars import exact, int32
from harness.frontends.pypto.values import HostTensor, View, WindowView

Uses = list[tuple[View, bool, bool]]


class TaskId:
    """What `as tid` binds. job: None for a region that ran in place."""

    __slots__ = ("job",)

    def __init__(self, job: Job | None) -> None:
        self.job = job

    def __repr__(self) -> str:
        return "task" if self.job is None else repr(self.job)


class NoDep:
    """An argument of a submitted kernel that makes no edges."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Promised(ops.Later):
    """A name that a task's region binds."""

    def __init__(self, cores: Cores, job: Job, name: str) -> None:
        self.cores = cores
        self.job = job
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name!r} of {self.job!r}"

    def get(self) -> Any:
        """Its value; waits for the task. Raises WrongArgument if the region did not bind it."""
        self.cores.await_job(self.job)
        if self.name not in self.job.results:
            raise WrongArgument(f"{self!r} was not bound by the region")
        return self.job.results[self.name]


def enter(
    kind: str, body: Callable[..., dict[str, Any]], names: Sequence[str], scope: dict[str, Any],
    outside: Sequence[str], access: dict[str, tuple[bool, bool]], aliases: dict[str, str],
    callees: Sequence[tuple[Any, Sequence[str | None], dict[str, str | None]]], *args: Any,
    __named__: bool, **options: Any,
) -> tuple[Any, ...]:
    """A region: run or submit `body(*captured)`; returns its task and the names used outside it.

    names, scope: the local names it captures and their values here. outside: those it binds that are
    used elsewhere. access: by name, whether it reads and writes it. aliases: names it binds to what
    captured ones stand for. callees: kernels it calls, and with which names.
    """
    captured = [_kept(scope.get(name)) for name in names]
    region = _Region(body, dict(zip(names, captured, strict=True)), outside, aliases)
    if on_host():
        return _on_host(region, kind, *args, **options)
    task = current()
    place: Place | None = task.place
    if kind == "split_aiv":
        return _split(region, place, *args, **options)
    if kind == "spmd":
        blocks = exact(args[0] if args else options["core_num"])
        if options.get("deps") is not None and not __named__:
            raise PldRuleError("spmd_deps", "pl.spmd takes deps= only with a name: `with pl.spmd(…) as tid`")
    else:
        blocks = 1
    level = options.get("level", args[0] if args else None)
    if place is None or place.job is not None or (kind == "at" and level is not Level.CORE_GROUP):
        return region.here(task, range(blocks), level if kind == "at" else Level.CORE_GROUP)
    uses = region.uses(access, callees, options.get("no_dep_args") or ())
    name = options.get("name_hint") or kind
    job = _submitted(
        place, name, region.body(takes_block=body.__code__.co_argcount > len(names)), uses,
        options.get("deps"), region.promised(), blocks=blocks, together=bool(options.get("sync_start")),
    )
    return TaskId(job), *(region.value_of(name, place.cores, job) for name in outside)


def _kept(value: Any) -> Any:
    """A captured value as it is now."""
    return value.copy() if isinstance(value, ops.Array) else value


class _Region:
    """A region's function with what it captures."""

    def __init__(
        self, body: Callable[..., dict[str, Any]], held: dict[str, Any], outside: Sequence[str],
        aliases: dict[str, str],
    ) -> None:
        self._body = body
        self.held = held
        self._outside = outside
        self._aliases = aliases

    def here(self, task: Task, blocks: range, level: Any) -> tuple[Any, ...]:
        """Run it in place, block after block."""
        before = task.level
        task.level = level or before
        found: dict[str, Any] = {}
        indexed = self._body.__code__.co_argcount > len(self.held)
        try:
            for block in blocks:
                with _as_block(block, len(blocks)):
                    found = self._body(*([int32(block)] if indexed else []), *self.held.values())
        finally:
            task.level = before
        return TaskId(None), *(found.get(name, self.held.get(name)) for name in self._outside)

    def body(self, *, takes_block: bool) -> Callable[[int], Any]:
        """What a core runs: values of other tasks are there by then."""
        def run(block: int) -> dict[str, Any]:
            values = [v.get() if isinstance(v, ops.Later) else v for v in self.held.values()]
            return self._body(*([int32(block)] if takes_block else []), *values)

        return run

    def promised(self) -> list[Job]:
        """The tasks whose values it captures."""
        return [value.job for value in self.held.values() if isinstance(value, Promised)]

    def uses(
        self, access: dict[str, tuple[bool, bool]], callees: Sequence[Any], free: Sequence[Any]
    ) -> Uses:
        """What it does to memory."""
        found = {name: list(one) for name, one in access.items()}
        for function, args, named in callees:
            for name, reads, writes in _told(function, args, named):
                if name in found:
                    found[name] = [found[name][0] or reads, found[name][1] or writes]
        return [
            (view, *found[name]) for name, view in self.held.items()
            if isinstance(view, View) and any(found[name]) and not any(view is one for one in free)
        ]

    def value_of(self, name: str, cores: Cores, job: Job) -> Any:
        """What a name that the task binds stands for in the orchestration."""
        alias = self._aliases.get(name)
        if alias is not None and alias in self.held:
            return self.held[alias]
        return Promised(cores, job, name)


# Of a region that runs in place: which block, of how many.
_BLOCK: ContextVar[tuple[int, int] | None] = ContextVar("rankfault_pld_block", default=None)


@contextmanager
def _as_block(block: int, blocks: int) -> Iterator[None]:
    token = _BLOCK.set((block, blocks))
    try:
        yield
    finally:
        _BLOCK.reset(token)


def _told(
    function: Any, args: Sequence[str | None], named: dict[str, str | None]
) -> Iterator[tuple[str, bool, bool]]:
    """By name, whether a kernel reads and writes its argument."""
    function = getattr(function, "function", function)
    annotations = getattr(function, "annotations", None)
    names = getattr(function, "names", [])
    pairs = [*enumerate(args), *((names.index(key), name) for key, name in named.items() if key in names)]
    for index, name in pairs:
        if name is None:
            continue
        declared = annotations[index] if annotations is not None and index < len(annotations) else None
        direction = "inout" if declared is None else declared.direction
        yield name, direction != "out", direction != "in"


def _submitted(
    place: Place, name: str, body: Callable[[int], Any], uses: Uses, deps: Any,
    promised: Sequence[Job] = (), *, blocks: int = 1, together: bool = False,
) -> Job:
    """A task with its edges: those of `deps` and, outside manual scopes, those of its uses."""
    after = _jobs_of(deps)
    if not place.manual:
        after += [*place.cores.edges(uses), *promised]
    job = Job(name, body, after, here(), blocks=blocks, together=together)
    for other in promised:
        if not job.follows(other):
            raise PldRuleError(
                "value_without_edge", f"task {name!r} uses a value of {other!r} without an edge to it: "
                "deps= is all that orders tasks in pl.manual_scope()"
            )
    if not place.manual:
        place.cores.wrote(job, uses)
    return place.cores.submit(job)


def _jobs_of(deps: Any) -> list[Job]:
    found: list[Job] = []
    for one in deps or ():
        for task in one.held if isinstance(one, ops.Array) else (one,):
            if task is None:
                continue
            if not isinstance(task, TaskId):
                raise PldRuleError("deps", f"deps= holds {task!r}; tasks, or arrays of them, are due")
            if task.job is not None:
                found.append(task.job)
    return found


def _split(
    region: _Region, place: Place | None, n: Any, mode: Any = None, **_options: Any
) -> tuple[Any, ...]:
    """`for lane in pl.split_aiv(2, mode=)`: the whole body on both vector cores of the group."""
    if exact(n) != 2:
        raise PldRuleError("split_aiv", f"pl.split_aiv({exact(n)}): a core group has 2 vector cores")
    if mode is not SplitMode.NONE:
        raise NotSimulated(f"pl.split_aiv(mode={mode}) is not simulated; pl.SplitMode.NONE is")
    if place is None or place.job is None:
        return region.here(current(), range(2), Level.CORE_GROUP)
    run = region.body(takes_block=True)
    block, task = place.block, current()

    def second(_block: int) -> Any:
        current().place.lane, current().place.block = 1, block
        return run(1)

    other = place.cores.fork(Job(f"{place.job.name}, lane 1", second, (), here()))
    place.lane = 0
    found = run(0)
    place.cores.await_job(other)
    task.level = Level.CORE_GROUP
    return TaskId(None), *(found.get(name, region.held.get(name)) for name in region._outside)


def _on_host(region: _Region, kind: str, *args: Any, **options: Any) -> tuple[Any, ...]:
    """`with pl.at(level=pl.Level.CHIP)` in host code: a dispatch of its body to the first chip."""
    level = options.get("level", args[0] if args else None)
    role: Role | None = options.get("role")
    if kind != "at" or level is Level.HOST:
        raise PldRuleError("device_only", f"pl.{kind} in host code; pl.at(level=pl.Level.CHIP) is due there")
    memory = {n: v for n, v in region.held.items() if isinstance(v, HostTensor | WindowView)}

    def body(*given: Any) -> None:
        region.held.update(zip(memory, given, strict=True))
        try:
            region.here(current(), range(1), Level.CHIP if role is not None else level)
        finally:
            region.held.update(memory)

    body.__name__ = options.get("name_hint") or "at"
    recording().dispatch(body.__name__, body, list(memory.values()), 0)
    outs = [region.held.get(region._aliases.get(name, name)) for name in region._outside]
    return TaskId(None), *outs


# Submitted kernels --------------------------------------------------------------------------------


def submit(function: Any, *args: Any, deps: Any = None, **options: Any) -> tuple[Any, ...]:
    """`pl.submit(self.kernel, …, deps=)`: the kernel's results, then its task."""
    return _submit(function, args, deps, 1, options)


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
    if options.get("predicate") is not None:
        raise NotSimulated("pl.submit(predicate=) is not simulated")
    called, owner = getattr(function, "function", function), getattr(function, "owner", None)
    if not hasattr(called, "annotations") or not hasattr(called, "body"):
        raise PldRuleError("submit", f"pl.submit of {function!r}: a kernel of the program, self.NAME, is due")
    free = [one.value for one in args if isinstance(one, NoDep)]
    values = called.ordered(tuple(one.value if isinstance(one, NoDep) else one for one in args), {})
    job, result = run_kernel(
        current(), called, owner, values, deps=deps, free=free, blocks=blocks,
        together=bool(options.get("sync_start")),
    )
    if str(called.returns) == "<class 'inspect._empty'>" or called.returns is None:
        return (TaskId(job),)
    results = result if isinstance(result, tuple) else (result,)
    if job is not None and any(one is None for one in results):
        results = tuple(returned(called, values)) if len(results) > 1 else results
    return *results, TaskId(job)


def run_kernel(
    task: Task, function: Any, owner: Any, values: list[Any], *, deps: Any = None,
    free: Sequence[Any] = (), blocks: int = 1, together: bool = False,
) -> tuple[Job | None, Any]:
    """A kernel called by orchestration: a task where there are cores, else run at once; and its result.

    The result is what the kernel writes, as its return annotation picks it; a kernel that returns
    anything else is waited for.
    """
    from harness.frontends.pypto.functions import returned, run_inline

    place: Place | None = task.place
    if place is None or place.job is not None:
        result = None
        for block in range(blocks):
            with _as_block(block, blocks):
                result = run_inline(task, function, owner, list(values))
        return None, result
    uses: Uses = []
    for value, declared in zip(values, function.annotations, strict=True):
        if isinstance(value, View) and not any(value is one for one in free):
            direction = "inout" if declared is None else declared.direction
            uses.append((value, direction != "out", direction != "in"))
    promised = [value.job for value in values if isinstance(value, Promised)]

    def body(_block: int) -> Any:
        given = [v.get() if isinstance(v, ops.Later) else v for v in values]
        return {"": run_inline(current(), function, owner, given)}

    job = _submitted(
        place, function.name, body, uses, deps, promised, blocks=blocks, together=together
    )
    if function.written:
        return job, returned(function, values)
    return job, Promised(place.cores, job, "")


def makes_tasks(function: Any, owner: Any) -> bool:
    """Whether a function, or one of the program's that it calls, holds a region or submits a kernel."""
    todo, seen = [function], {id(function)}
    while todo:
        one = todo.pop()
        if one.has_tasks:
            return True
        body = one.body
        held = dict(zip(body.__code__.co_freevars, body.__closure__ or (), strict=True))
        for name in body.__code__.co_names + body.__code__.co_freevars:
            for other in (_content(held.get(name)), body.__globals__.get(name), vars(type(owner)).get(name)):
                if hasattr(other, "has_tasks") and id(other) not in seen:
                    seen.add(id(other))
                    todo.append(other)
    return False


def _content(cell: Any) -> Any:
    try:
        return None if cell is None else cell.cell_contents
    except ValueError:  # not bound yet
        return None


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
            with _as_block(block, self._count):
                yield int32(block)

    def __enter__(self) -> TaskId:
        raise NotSimulated("`with pl.spmd(n)` in a function whose source is not to be had is not simulated")

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
    view = ops.view_of(signal, "defer_wait")
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
    block = _BLOCK.get()
    if block is not None:
        return int32(block[0])
    place: Place | None = current().place
    return int32(0 if place is None else place.block)


def get_block_num() -> Any:
    """How many blocks the running task has."""
    block = _BLOCK.get()
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
    """Order this core's writes: before, then after."""
    operate("fence")


def cacheinvalid(*_region: Any) -> None:
    """Publish what this core wrote."""
    publish()

