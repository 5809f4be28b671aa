"""The decorators of `pl`, and how a call goes: by the level of what is called and of who calls.

    from ordinary Python    a HOST function is compiled and run (compiled.py)
    from host code          a chip's function is a dispatch, recorded with `device=`; its result is an
                            alias of what it writes; a sub-worker is recorded as well; inline functions
                            run at once
    from a device           chip orchestration, InCore kernels and inline functions run at once, in
                            its task

A call checks its arguments against the annotations: a window may be declared in another shape with as
many elements (it is seen in that shape), dynamic extents are bound, scalars become the device's.

Not modelled: what decorators ask of the compiler (`auto_scope`, `split`, …).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.frontends.pypto import regions, tasks
from harness.frontends.pypto.annotations import (
    Annotation,
    Expression,
    Symbol,
    annotation_of,
    bound,
)
from harness.frontends.pypto.effects import Effects
from harness.frontends.pypto.enums import Level
from harness.frontends.pypto.operate import HOST, TASK, Task
from harness.frontends.pypto.recording import Recording
from harness.frontends.pypto.rewriting import has_tasks, rewritten
from harness.frontends.pypto.rules import broken, check_extents, check_tensors_first, check_views
from harness.frontends.pypto.scalars import exact, scalar
from harness.frontends.pypto.values import HostTensor, Tile, View, WindowView

MEMORY = (View, HostTensor, WindowView)
KINDS = ("host", "sub_worker", "chip", "incore", "inline")


@dataclass(slots=True)
class Fitted:
    """What a call's arguments need: shapes to see memory in, by position; scalars to convert; symbols."""

    shapes: list[tuple[int, tuple[int, ...]]]
    scalars: list[tuple[int, Any]]
    symbols: dict[str, int]


class Function:
    """A decorated function. kind: one of KINDS. names, annotations: of its parameters, without `self`."""

    def __init__(self, body: Callable[..., Any], kind: str) -> None:
        functools.update_wrapper(self, body)
        self.kind = kind
        self.body = rewritten(body, regions.enter)
        self.has_tasks = has_tasks(self.body)
        signature = inspect.signature(body)
        parameters = list(signature.parameters.values())
        self.takes_self = bool(parameters) and parameters[0].name == "self"
        if self.takes_self:
            parameters = parameters[1:]
        self.names = [parameter.name for parameter in parameters]
        self.defaults = {
            one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty
        }
        self.annotations = [annotation_of(one.annotation) for one in parameters]
        self.returns = signature.return_annotation
        self._fitted: dict[Any, Fitted] = {}
        self.tasks: bool | None = None  # whether a dispatch of it makes any; told at the first
        self.effects: Effects | None = None  # told at the first call as a task

    def __repr__(self) -> str:
        return f"pl function {self.__name__}"  # type: ignore[attr-defined]

    @property
    def name(self) -> str:
        """As it is written."""
        return str(self.__name__)  # type: ignore[attr-defined]

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None or not self.takes_self:
            return self
        return Bound(self, owner)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call it; what that means depends on who calls."""
        return call(self, None, args, named)

    def compile(self, *args: Any, config: Any = None, **named: Any) -> Any:
        """Compile for arguments like these; see compiled.py."""
        from harness.frontends.pypto.compiled import compiled_function

        return compiled_function(self, None, config)

    @functools.cached_property
    def written(self) -> list[int]:
        """Positions of the parameters that it may write, in order."""
        return [
            index for index, one in enumerate(self.annotations)
            if one is not None and one.direction != "in"
        ]

    def ordered(self, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Arguments by position. Raises TypeError, as a Python call does."""
        if not named and len(args) == len(self.names):
            return list(args)
        given = dict(zip(self.names, args, strict=False))
        twice = [name for name in named if name in given]
        unknown = [name for name in named if name not in self.names]
        if len(args) > len(self.names) or twice or unknown:
            raise TypeError(
                f"{self.name}() takes {len(self.names)} arguments: {', '.join(self.names)}; given "
                f"{len(args)} and {', '.join(named) or 'none by name'}"
            )
        given |= named
        missing = [name for name in self.names if name not in given and name not in self.defaults]
        if missing:
            raise TypeError(f"{self.name}() lacks {', '.join(missing)}")
        return [given.get(name, self.defaults.get(name)) for name in self.names]

    def fit(self, args: Sequence[Any], world: int) -> Fitted:
        """What these arguments need. Raises PldRuleError where they are not what is declared."""
        key = (world, *(
            (value.shape, value.dtype, type(value), type(value) is View and value.buffer is not None)
            if isinstance(value, MEMORY) else None
            for value in args
        ))
        found = self._fitted.get(key)
        if found is None:
            found = self._fitted[key] = self._fit(args, world)
        return found

    def _fit(self, args: Sequence[Any], world: int) -> Fitted:
        fitted = Fitted([], [], {})
        pending = []
        for index, (value, declared) in enumerate(zip(args, self.annotations, strict=True)):
            if declared is None:
                continue
            if declared.kind == "scalar":
                if isinstance(value, MEMORY):
                    raise broken(
                        "wrong_operand",
                        f"{self.name}: {self.names[index]} is declared a scalar, given {value!r}",
                    )
                fitted.scalars.append((index, declared.dtype))
            elif isinstance(value, MEMORY):
                self._same_kind(index, value, declared)
                if declared.shape is not None:
                    pending.append((index, value, declared.shape))
                    fitted.symbols |= bindings(declared.shape, value.shape)
        with bound(fitted.symbols):
            for index, value, shape in pending:
                wanted = tuple(map(exact, shape))
                if wanted == value.shape:
                    continue
                if _numel(wanted) != _numel(value.shape) or not _reshapes(value):
                    check_extents(
                        f"{self.name}: {self.names[index]}",
                        [n if type(n) is int else m for n, m in zip(shape, wanted, strict=True)],
                        value.shape, world,
                    )
                fitted.shapes.append((index, wanted))
        return fitted

    def _same_kind(self, index: int, value: Any, declared: Annotation) -> None:
        name = f"{self.name}: {self.names[index]}"
        reachable = isinstance(value, WindowView) or (isinstance(value, View) and value.is_window)
        if declared.kind == "window" and not reachable:
            raise broken("not_a_window", f"{name} is declared a DistributedTensor, given {value!r}")
        if declared.dtype is not None and value.dtype.torch is not declared.dtype.torch:
            raise broken("wrong_dtype", f"{name} is declared {declared.dtype.name}, given {value!r}")


def _numel(shape: Sequence[int]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product


def _reshapes(value: Any) -> bool:
    return isinstance(value, WindowView) or (isinstance(value, View) and value.is_window)


def bindings(declared: Sequence[Any], given: Sequence[int]) -> dict[str, int]:
    """What the declared extents bind their symbols to."""
    found: dict[str, int] = {}
    if len(declared) != len(given):
        return found
    for extent, value in zip(declared, given, strict=True):
        if isinstance(extent, Symbol):
            found.setdefault(extent.name, value)
    for extent, value in zip(declared, given, strict=True):
        if isinstance(extent, Expression):
            solved = extent.solved(value)
            if solved is not None:
                found.setdefault(*solved)
    return found


class Bound:
    """A function of a program class with its `self`."""

    def __init__(self, function: Function, owner: Any) -> None:
        self.function = function
        self.owner = owner

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call it; what that means depends on who calls."""
        return call(self.function, self.owner, args, named)


def call(function: Function, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A call of a decorated function, wherever it is made."""
    host = HOST.get()
    if host is not None:
        return _from_host(host, function, owner, args, named)
    task = TASK.get()
    if task is not None:
        named.pop("device", None)
        if function.kind == "incore":
            return tasks.run_kernel(task, function, owner, function.ordered(args, named))[1]
        return run_inline(task, function, owner, function.ordered(args, named))
    from harness.frontends.pypto.compiled import called_from_python

    return called_from_python(function, owner, args, named)


def run_inline(task: Task, function: Function, owner: Any, args: list[Any]) -> Any:
    """Run a function on a device, in the task that is running."""
    if function.kind in ("host", "sub_worker"):
        raise broken("host_only", f"{function.name} is a function of the host, called on a device")
    symbols = fitted(function, args, task.rank.size, device=True)
    level = task.level
    if function.kind != "inline":
        task.level = Level.CHIP if function.kind == "chip" else Level.CORE_GROUP
    try:
        if not symbols:
            return function.body(owner, *args) if function.takes_self else function.body(*args)
        with bound(symbols):
            return function.body(owner, *args) if function.takes_self else function.body(*args)
    finally:
        task.level = level


def fitted(function: Function, args: list[Any], world: int, *, device: bool) -> dict[str, int]:
    """Change the arguments to what the function declares; returns the symbols they bind."""
    found = function.fit(args, world)
    for index, shape in found.shapes:
        args[index] = args[index].reshaped(shape)
    if device:
        for index, dtype in found.scalars:
            value = args[index]
            if value is not None and not isinstance(value, Tile):
                args[index] = scalar(value, dtype)
    return found.symbols


def _from_host(
    host: Recording, function: Function, owner: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    device = named.pop("device", None)
    values = function.ordered(args, named)
    if function.kind == "sub_worker":
        host.sub_worker(function, values)
        return returned(function, values)
    if function.kind in ("host", "inline"):
        symbols = fitted(function, values, host.size, device=False)
        with bound(symbols):
            return function.body(owner, *values) if function.takes_self else function.body(*values)
    check_tensors_first(
        function.name,
        [(name, isinstance(value, MEMORY)) for name, value in zip(function.names, values, strict=True)],
    )
    check_views(
        function.name,
        [
            (name, value.buffer, value.dtype.name)
            for name, value in zip(function.names, values, strict=True) if isinstance(value, WindowView)
        ],
    )
    number = 0 if device is None else exact(device)
    if device is not None:
        host.looped.add(number)
    if not 0 <= number < host.size:
        raise broken(
            "wrong_device", f"dispatch of {function.name}: device={number} is outside the logical ranks "
            f"0..{host.size - 1}"
        )
    fitted(function, values, host.size, device=False)

    def body(*given: Any) -> Any:
        return call(function, owner, given, {})

    if function.tasks is None:
        function.tasks = tasks.makes_tasks(function, owner)
    makes = function.tasks
    host.dispatch(function.name, body, values, number, function=function, tasks=makes)
    return returned(function, values)


def returned(function: Function, args: Sequence[Any]) -> Any:
    """What a dispatch returns before it has run: the arguments that it writes, as its return annotation
    picks them (their number, kind and shape); all of them where it has none."""
    candidates = [args[index] for index in function.written]
    declared = _return_annotations(function.returns)
    if declared is None:
        if len(candidates) > 1:
            return tuple(candidates)
        return candidates[0] if candidates else None
    found = []
    for one in declared:
        fitting = [value for value in candidates if _is_like(value, one)] or candidates
        if not fitting:
            return None
        found.append(fitting[0])
        candidates = [value for value in candidates if value is not fitting[0]] or candidates
    return found[0] if len(found) == 1 else tuple(found)


def _return_annotations(given: Any) -> list[Annotation | None] | None:
    if given in (inspect.Signature.empty, None):
        return None
    parts = getattr(given, "__args__", None)
    if parts is None:
        return [annotation_of(given)]
    return [annotation_of(one) for one in parts]


def _is_like(value: Any, declared: Annotation | None) -> bool:
    if declared is None:
        return True
    if declared.kind == "window" and not isinstance(value, WindowView):
        return False
    if declared.dtype is not None and declared.dtype.torch is not value.dtype.torch:
        return False
    if declared.shape is None or len(declared.shape) != len(value.shape):
        return declared.shape is None
    return all(
        not isinstance(n, int) or n == m for n, m in zip(declared.shape, value.shape, strict=True)
    )
