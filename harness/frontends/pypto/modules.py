"""The modules that a pld program imports, made while one runs.

    with installed():
        exec(program)            # import pypto.language as pl

`pypto`, `pypto.language`, `pypto.language.distributed`, `pypto.runtime`, `pypto.ir` and what is below them stand
in sys.modules while `installed()` is in force and are gone afterwards. Each part of the front end lists
what it offers as `NAMES`: a dict of names, dotted where they are below `pl` or `pld`.

A name that is not there is refused at the line that asks for it. A real `pypto` that is installed is left
alone: ours beside it must be asked for (`--as pld`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from harness.errors import NotSimulated, UsageError
from harness.frontends.pypto import annotations, compiled, dtypes, enums, functions
from harness.frontends.pypto.operate import here
from harness.record import place

_PL_PARTS = ("ops_names",)
_PLD_PARTS = ("remote", "collectives", "tasks")
ROOT = "pypto"


class Simulated(ModuleType):
    """A module, or a namespace such as `pl.tile`, of ours."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        code, lasti = here()
        short = self.__name__.replace("pypto.language.distributed", "pld").replace("pypto.language", "pl")
        raise NotSimulated(f"{place(code, lasti)}: {short}.{name} is not simulated")


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


def _parts(names: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    for name in names:
        full = f"harness.frontends.pypto.{name}"
        if importlib.util.find_spec(full) is not None:
            yield importlib.import_module(full).NAMES


def _public(module: ModuleType, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


@cache
def modules() -> dict[str, ModuleType]:
    """Our modules by their full names."""
    pl = Simulated("pypto.language")
    _filled(pl, dtypes.DTYPES)
    _filled(pl, _public(
        annotations, ("Tensor", "Tile", "Array", "Scalar", "Out", "InOut", "dynamic")
    ))
    _filled(pl, _public(enums, (
        "AtomicType", "ForKind", "FunctionType", "Level", "MemorySpace", "Role", "ScopeMode",
        "SplitMode", "TensorLayout", "TileLayout",
    )))
    _filled(pl, _public(functions, ("jit", "function", "inline", "program")))
    _filled(pl, {
        "Mem": enums.MemorySpace, "JITFunction": functions.Function, "DynVar": annotations.Symbol,
        "TaskId": annotations.Scalar[dtypes.TASK_ID], "DataType": dtypes.DataType,
        "ND": enums.TensorLayout.ND, "DN": enums.TensorLayout.DN, "NZ": enums.TensorLayout.NZ,
    })
    for names in _parts(_PL_PARTS):
        _filled(pl, names)
    pld = Simulated("pypto.language.distributed")
    _filled(pld, _public(enums, ("AtomicType", "NotifyOp", "ReduceOp", "WaitCmp")))
    _filled(pld, {"DistributedTensor": annotations.DistributedTensor})
    for names in _parts(_PLD_PARTS):
        _filled(pld, names)
    found: dict[str, ModuleType] = {"pypto.language": pl, "pypto.language.distributed": pld}
    config = {"DistributedConfig": compiled.DistributedConfig, "DistributedCompiledProgram": compiled.Compiled}
    runtime = {
        "RunConfig": compiled.RunConfig, "DistributedWorker": compiled.DistributedWorker,
        "DeviceTensor": compiled.DeviceTensor, "run": _run,
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
    return importlib.util.find_spec(ROOT) is not None


@contextlib.contextmanager
def installed(*, asked: bool = False) -> Iterator[None]:
    """Our modules are importable. asked: although a real pypto is installed, which is out of sight then.

    Raises UsageError where one is and ours was not asked for.
    """
    held = sys.modules.get(ROOT)
    if isinstance(held, Simulated):
        yield
        return
    if not asked and is_real():
        raise UsageError("pypto is installed here; say --as pld to run its programs on the simulated fabric")
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
