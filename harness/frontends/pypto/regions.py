"""Regions of device code that are tasks: `with pl.at(...)`, `with pl.spmd(n)`, `for i in pl.spmd(n)`.

rewriting.py makes a function of a region; `enter` runs it as a task, on a core (cores.py), after the
tasks it has edges to. Edges are what `deps=` says and, outside `pl.manual_scope()`, what the uses of
memory say: who reads or writes comes after who wrote, never a writer after a reader. What a region uses
is read off its statements (directions.py), what a kernel uses off its parameters. `pl.split_aiv` runs its
body on both vector cores of the task that it is in.

Where a device was given no cores (its program makes no tasks), and inside a task, a region runs at once,
in place.

Not modelled: `allow_early_resolve=`; bodies of `pl.split_aiv` that the compiler halves (vector_cores.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from harness.errors import NotSimulated, PldRuleError, WrongArgument
from harness.frontends.pypto.cores import Cores, Job, Place
from harness.frontends.pypto.effects import effects_of
from harness.frontends.pypto.enums import Level, Role, SplitMode
from harness.frontends.pypto.operands import Later
from harness.frontends.pypto.operate import Task, current, here, on_host, recording
from harness.frontends.pypto.ops_arrays import Array
from harness.frontends.pypto.predicates import Gate, gate_of
from harness.frontends.pypto.scalars import exact, int32
from harness.frontends.pypto.values import HostTensor, View, WindowView
from harness.frontends.pypto.vector_cores import CROSSINGS, Crossings
from harness.frontends.pypto.written import Uses


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


class Promised(Later):
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
            raise PldRuleError("spmd_deps", "pl.spmd takes deps= only as `with pl.spmd(…) as tid`")
    else:
        blocks = 1
    gate = gate_of(options)
    level = options.get("level", args[0] if args else None)
    if place is None or place.job is not None or (kind == "at" and level is not Level.CORE_GROUP):
        if gate is not None and not gate.holds():
            blocks = 0
        return region.here(task, range(blocks), level if kind == "at" else Level.CORE_GROUP)
    uses = region.uses(access, callees, options.get("no_dep_args") or ())
    name = options.get("name_hint") or kind
    job = submitted(
        place, name, region.body(takes_block=body.__code__.co_argcount > len(names)), uses,
        options.get("deps"), region.promised(), blocks=blocks, together=bool(options.get("sync_start")),
        gate=gate,
    )
    return TaskId(job), *(region.value_of(name, place.cores, job) for name in outside)


def _kept(value: Any) -> Any:
    """A captured value as it is now."""
    return value.copy() if isinstance(value, Array) else value


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
                with as_block(block, len(blocks)):
                    found = self._body(*([int32(block)] if indexed else []), *self.held.values())
        finally:
            task.level = before
        return TaskId(None), *(found.get(name, self.held.get(name)) for name in self._outside)

    def body(self, *, takes_block: bool) -> Callable[[int], Any]:
        """What a core runs: values of other tasks are there by then."""
        def run(block: int) -> dict[str, Any]:
            values = [v.get() if isinstance(v, Later) else v for v in self.held.values()]
            return self._body(*([int32(block)] if takes_block else []), *values)

        return run

    def calls(self, names: frozenset[str]) -> bool:
        """Whether its body names one of these."""
        return not names.isdisjoint(self._body.__code__.co_names)

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
            (view, found[name][0], found[name][1]) for name, view in self.held.items()
            if isinstance(view, View) and any(found[name]) and not any(view is one for one in free)
        ]

    def value_of(self, name: str, cores: Cores, job: Job) -> Any:
        """What a name that the task binds stands for in the orchestration."""
        alias = self._aliases.get(name)
        if alias is not None and alias in self.held:
            return self.held[alias]
        return Promised(cores, job, name)


# Of a region that runs in place: which block, of how many.
BLOCK: ContextVar[tuple[int, int] | None] = ContextVar("rankfault_pld_block", default=None)


@contextmanager
def as_block(block: int, blocks: int) -> Iterator[None]:
    """What runs in it is one of several blocks."""
    token = BLOCK.set((block, blocks))
    try:
        yield
    finally:
        BLOCK.reset(token)


def _told(
    function: Any, args: Sequence[str | None], named: dict[str, str | None]
) -> Iterator[tuple[str, bool, bool]]:
    """By name, whether a kernel reads and writes its argument."""
    owner = getattr(function, "owner", None)
    function = getattr(function, "function", function)
    known = hasattr(function, "effects")
    directions = effects_of(function, owner).directions if known else []
    names = function.names if known else []
    pairs = [*enumerate(args), *((names.index(key), name) for key, name in named.items() if key in names)]
    for index, name in pairs:
        if name is not None:
            direction = directions[index] if index < len(directions) else "inout"
            yield name, direction != "out", direction != "in"


def submitted(
    place: Place, name: str, body: Callable[[int], Any], uses: Uses, deps: Any,
    promised: Sequence[Job] = (), *, blocks: int = 1, together: bool = False, gate: Gate | None = None,
) -> Job:
    """A task with its edges: those of `deps` and, outside manual scopes, those of its uses."""
    after = _jobs_of(deps)
    if not place.manual:
        after += [*place.cores.written.before(uses), *promised]
    job = Job(name, body, after, here(), blocks=blocks, together=together, gate=gate)
    for other in promised:
        if not job.follows(other):
            raise PldRuleError(
                "value_without_edge", f"task {name!r} uses a value of {other!r} without an edge to it: "
                "deps= is all that orders tasks in pl.manual_scope()"
            )
    if not place.manual:
        place.cores.written.add(job, uses)
    return place.cores.submit(job)


def _jobs_of(deps: Any) -> list[Job]:
    found: list[Job] = []
    for one in deps or ():
        for task in one.held if isinstance(one, Array) else (one,):
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
    if mode is not SplitMode.NONE and not region.calls(CROSSINGS):
        raise NotSimulated(
            f"pl.split_aiv(mode={mode}) of a body that names no crossing (pl.aiv_shard, pl.aic_gather) "
            "is not simulated"
        )
    crossings = Crossings(mode)
    run = region.body(takes_block=True)
    task = current()
    if place is None or place.job is None:
        before, task.level = task.level, Level.CORE_GROUP
        for lane in range(2):
            with crossings.on(lane), as_block(lane, 2):
                found = run(lane)
        task.level = before
        return TaskId(None), *(found.get(name, region.held.get(name)) for name in region._outside)
    block = place.block

    def second(_block: int) -> Any:
        current().place.lane, current().place.block = 1, block
        with crossings.on(1):
            return run(1)

    other = place.cores.fork(Job(f"{place.job.name}, lane 1", second, (), here()))
    place.lane = 0
    with crossings.on(0):
        found = run(0)
    place.cores.await_job(other)
    task.level = Level.CORE_GROUP
    return TaskId(None), *(found.get(name, region.held.get(name)) for name in region._outside)


def _on_host(region: _Region, kind: str, *args: Any, **options: Any) -> tuple[Any, ...]:
    """`with pl.at(level=pl.Level.CHIP)` in host code: a dispatch of its body to the first chip."""
    level = options.get("level", args[0] if args else None)
    role: Role | None = options.get("role")
    if kind != "at" or level is Level.HOST:
        raise PldRuleError("device_only", f"pl.{kind} in host code; pl.at(level=pl.Level.CHIP) is due")
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
