"""The modules that a pld program imports, made while one runs.

    with installed():
        exec(program)            # import pypto.language as pl

`pypto`, `pypto.language`, `pypto.language.distributed`, `pypto.runtime`, `pypto.ir` and what is below
them stand in sys.modules while `installed()` is in force and are gone afterwards.

A name that is not there is refused at the line that asks for it. A real `pypto` that is installed is left
alone: ours beside it must be asked for (`--as pld`).
"""

from __future__ import annotations

import contextlib
import difflib
import dis
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from harness.errors import NotSimulated, UsageError
from harness.frontends.pypto import annotations as types
from harness.frontends.pypto import (
    collectives,
    compiled,
    decorators,
    dtypes,
    enums,
    functions,
    ops_names,
    remote,
)
from harness.frontends.pypto.operate import here
from harness.record import place

ROOT = "pypto"
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


class Simulated(ModuleType):
    """A module, or a namespace such as `pl.tile`, of ours."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        code, lasti = here()
        short = self.__name__.replace("pypto.language.distributed", "pld").replace("pypto.language", "pl")
        kind = ImportError if code is not None and code.co_code[lasti] == _IMPORT_FROM else NotSimulated
        known = [one for one in vars(self) if not one.startswith("_")]
        like = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        meant = f"; did you mean {like[0]!r}?" if like else ""
        raise kind(f"{place(code, lasti)}: {short}.{name} is not simulated{meant}")


def _filled(module: Simulated, names: Mapping[str, Any]) -> Simulated:
    """Put dotted names into a module."""
    for dotted, value in names.items():
        *path, last = dotted.split(".")
        owner = module
        for part in path:
            if part not in vars(owner):
                setattr(owner, part, Simulated(f"{owner.__name__}.{part}"))
            owner = vars(owner)[part]
        setattr(owner, last, value)
    return module


def _public(module: ModuleType, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


@cache
def modules() -> dict[str, ModuleType]:
    """Our modules by their full names."""
    pl = Simulated("pypto.language")
    _filled(pl, dtypes.DTYPES)
    _filled(pl, _public(
        types, ("Tensor", "Tile", "Array", "Scalar", "Out", "InOut", "dynamic")
    ))
    _filled(pl, _public(enums, (
        "AtomicType", "ForKind", "FunctionType", "Level", "MemorySpace", "Role", "ScopeMode",
        "SplitMode", "TensorLayout", "TileLayout",
    )))
    _filled(pl, _public(decorators, ("jit", "function", "inline", "program")))
    _filled(pl, {
        "Mem": enums.MemorySpace, "JITFunction": functions.Function, "DynVar": types.Symbol,
        "TaskId": types.Scalar[dtypes.TASK_ID], "DataType": dtypes.DataType,
        "ND": enums.TensorLayout.ND, "DN": enums.TensorLayout.DN, "NZ": enums.TensorLayout.NZ,
    })
    _filled(pl, ops_names.UNIFIED)
    for space, names in (
        ("tile", ops_names.TILE), ("tensor", ops_names.TENSOR), ("array", ops_names.ARRAY),
        ("system", ops_names.SYSTEM),
    ):
        _filled(pl, {f"{space}.{name}": value for name, value in names.items()})
    pld = Simulated("pypto.language.distributed")
    _filled(pld, _public(enums, ("AtomicType", "NotifyOp", "ReduceOp", "WaitCmp")))
    _filled(pld, {"DistributedTensor": types.DistributedTensor})
    _filled(pld, remote.NAMES)
    _filled(pld, collectives.NAMES)
    _filled(pld, {"system.defer_wait": ops_names.DEFER_WAIT})
    found: dict[str, ModuleType] = {"pypto.language": pl, "pypto.language.distributed": pld}
    config = {
        "DistributedConfig": compiled.DistributedConfig,
        "DistributedCompiledProgram": compiled.Compiled,
    }
    runtime = {
        "RunConfig": compiled.RunConfig, "DistributedWorker": compiled.DistributedWorker,
        "DeviceTensor": compiled.DeviceTensor, "run": _run,
        "StackedDeviceTensor": compiled.StackedDeviceTensor,
    }
    for name, content in (
        ("pypto", {"DataType": dtypes.DataType}),
        ("pypto.ir", {"compile": compiled.compile_program, **config}),
        ("pypto.ir.distributed_compiled_program", config),
        ("pypto.runtime", runtime),
        ("pypto.runtime.runner", runtime),
        ("pypto.runtime.distributed_runner", {
            "DistributedWorker": compiled.DistributedWorker, "_tensor_from_continuous": _as_it_is,
        }),
    ):
        found[name] = _filled(Simulated(name), content)
    for name, module in found.items():
        if module.__name__ not in ("pypto.runtime.runner",):
            module.__path__ = []  # a package: `import a.b.c` asks for it
        above, _, last = name.rpartition(".")
        if above:
            setattr(found[above], last, module)
    return found


def _run(program: Any, *args: Any, config: Any = None, **options: Any) -> Any:
    """`pypto.runtime.run`: compile and call."""
    return compiled.compile_program(program, config=config, **options)(*args)


def _as_it_is(tensor: Any) -> Any:
    """`_tensor_from_continuous`: what a sub-worker is given is a tensor already."""
    return tensor


def is_real() -> bool:
    """Whether a real pypto is installed."""
    held = sys.modules.get(ROOT)
    if held is not None:
        return not isinstance(held, Simulated)
    spec = importlib.util.find_spec(ROOT)
    return spec is not None and spec.origin is not None  # a mere folder of that name is none


def check_choice(*, asked: bool) -> None:
    """Refuse to put a real pypto out of sight where nobody asked for it. Raises UsageError."""
    if not asked and is_real():
        raise UsageError(
            "pypto is installed here; say --as pld to run its programs on the simulated fabric"
        )


@contextlib.contextmanager
def installed(*, asked: bool = False) -> Iterator[None]:
    """Our modules are importable. asked: although a real pypto is installed, which is out of sight then.

    Raises UsageError where one is and ours was not asked for.
    """
    held = sys.modules.get(ROOT)
    if isinstance(held, Simulated):
        yield
        return
    check_choice(asked=asked)
    real = {
        name: sys.modules.pop(name) for name in list(sys.modules)
        if name == ROOT or name.startswith(ROOT + ".")
    }
    ours = modules()
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name in ours:
            sys.modules.pop(name, None)
        sys.modules.update(real)
