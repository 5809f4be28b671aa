"""What `pypto.ir.compile`, `host.compile` and `compiled.prepare` give: calls that are simulated.

Nothing is compiled. The config decides on which devices a call runs (`device_ids`); the rest of it asks
for things that the simulation does not have. `output_dir` is a folder whose compiler artefacts are said
to be there and are not.

Not modelled: processes that `prepare` forks (a host tensor outside shared memory is refused, as it would
be invisible to them), asynchronous `submit`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PosixPath
from typing import Any

import torch

from harness.errors import PldRuleError
from harness.frontends.pypto.calls import HostCall, completed, perform
from harness.frontends.pypto.decorators import Program
from harness.frontends.pypto.functions import Function
from harness.frontends.pypto.rules import broken

DIAGNOSTICS = ("enable_chip_swimlane", "enable_dep_gen", "enable_scope_stats")  # of a RunConfig


class SeveralPrograms(PldRuleError, TypeError):
    """A worker with several programs that was called as if it had one."""


class _Options:
    """Keyword options, kept as attributes; what nobody sets is None."""

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class DistributedConfig(_Options):
    """Which cards a program runs on. device_ids: one a rank."""

    def __init__(self, device_ids: Sequence[int] = (0,), **options: Any) -> None:
        super().__init__(device_ids=list(device_ids), **options)


class RunConfig(_Options):
    """How to compile and run. distributed_config: which cards."""


class Artefacts(PosixPath):
    """A folder of compiler artefacts: asked whether they exist, it says yes."""

    def is_dir(self) -> bool:
        """Yes."""
        return True

    def is_file(self) -> bool:
        """Yes."""
        return True

    def exists(self) -> bool:
        """Yes."""
        return True


class Compiled:
    """A host function, ready to be called."""

    def __init__(
        self, function: Function, owner: Any, config: Any, *,
        functions: Mapping[str, Function] | None = None, output_dir: Any = None,
    ) -> None:
        self.function = function
        self.owner = owner
        self.config = config
        self.functions = functions or {}
        self._output_dir = output_dir

    def __repr__(self) -> str:
        return f"compiled {self.function.name}"

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The cards that it runs on."""
        return device_ids_of(self.config)

    @property
    def output_dir(self) -> Path:
        """Where its artefacts would be."""
        if self._output_dir is None:
            self._output_dir = str(scratch(self.function.name))
        return Artefacts(self._output_dir)

    def __call__(self, *args: Any, config: Any = None, **named: Any) -> Any:
        """Call it. config: that of the compilation, if it names no cards. Raises CallFailed."""
        ids = device_ids_of(config) if _names_cards(config) else self.device_ids
        return made_call(self, args, named, ids, diagnostics=self._diagnostics(config))[0]

    def _diagnostics(self, config: Any) -> Path | None:
        """Where a config that asks for diagnostics has them put."""
        asked = any(getattr(config, name, None) for name in DIAGNOSTICS)
        return Path(self.output_dir) if asked else None

    def prepare(
        self, config: Any = None, *, persistent: bool = False, reset_persistent_windows: bool = True,
        sub_worker_overrides: Mapping[str, Callable[..., Any]] | None = None,
        extra_compiled: Sequence[Compiled] = (), callbacks: Any = None, **_options: Any,
    ) -> DistributedWorker:
        """A worker that is set up once. Raises ValueError for an override of no sub-worker."""
        return DistributedWorker(
            [self, *extra_compiled], config, persistent=persistent,
            reset_persistent_windows=reset_persistent_windows,
            sub_worker_overrides=sub_worker_overrides,
        )


def scratch(name: str) -> Path:
    """The output folder of a program that names none."""
    return Path(tempfile.gettempdir()) / "rankfault_pld" / name


def _names_cards(config: Any) -> bool:
    return config is not None and getattr(config, "distributed_config", None) is not None


def device_ids_of(config: Any) -> tuple[int, ...]:
    """The cards that a RunConfig or DistributedConfig names; card 0 if it names none."""
    found = getattr(config, "distributed_config", None) or config
    ids = getattr(found, "device_ids", None)
    return tuple(ids) if ids else (0,)


def made_call(
    compiled: Compiled, args: Sequence[Any], named: Mapping[str, Any], ids: tuple[int, ...], *,
    kept: list[list[bytes]] | None = None, overrides: Mapping[str, Any] | None = None,
    diagnostics: Path | None = None, retains: bool = False,
) -> tuple[Any, list[list[bytes]]]:
    """Make a call; returns what it returns, and its windows at the end."""
    values, outs = completed(compiled.function, args, dict(named))
    plain = [
        value.tensor if isinstance(value, DeviceTensor) else value for value in values
    ]
    windows = perform(HostCall(
        compiled.function, compiled.owner, plain, ids, kept, dict(overrides or {}), diagnostics, retains
    ))
    found = [plain[index] for index in outs]
    return (None if not found else found[0] if len(found) == 1 else tuple(found)), windows


def compiled_function(function: Function, owner: Any, config: Any) -> Compiled:
    """`host.compile(...)`."""
    return Compiled(function, owner, config)


def compile_program(
    program: Any, *, platform: str = "", distributed_config: Any = None, output_dir: Any = None,
    config: Any = None, **_options: Any,
) -> Any:
    """`pypto.ir.compile`: of a `@pl.program` class, or of a host function."""
    settled = RunConfig(
        platform=platform,
        distributed_config=distributed_config or getattr(config, "distributed_config", None),
    )
    if isinstance(program, Function):
        return Compiled(program, None, settled, output_dir=output_dir)
    if not isinstance(program, Program):
        raise TypeError(f"ir.compile: {program!r} is no @pl.program class and no pl function")
    chips = [one for one in program.functions.values() if one.kind == "chip"]
    if len(chips) > 1 and not any(one.kind == "host" for one in program.functions.values()):
        from harness.frontends.pypto.orchestrations import Orchestrations  # which needs this module

        folder = Path(output_dir) if output_dir else scratch(program.name)
        return Orchestrations(program, chips, settled, folder)
    return Compiled(
        program.entry(), program.owner, settled, functions=program.functions, output_dir=output_dir
    )


def called_from_python(
    function: Function, owner: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """A host function that ordinary Python calls: compiled for its `config`, and run."""
    config = named.pop("config", None)
    if function.kind not in ("host", "chip"):
        if function.kind in ("sub_worker", "inline"):
            return function.body(*args, **named)
        raise broken("device_only", f"{function.name} runs on a device; ordinary Python called it")
    return Compiled(function, owner, config)(*args, **named)


class DeviceTensor:
    """Memory of a worker that stays between calls. tensor: what holds it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


class StackedDeviceTensor(DeviceTensor):
    """The same, a part a card: part i stays with card worker_ids[i]."""

    def __init__(self, tensor: torch.Tensor, worker_ids: Sequence[int]) -> None:
        super().__init__(tensor)
        self.worker_ids = list(worker_ids)


class Handle:
    """`worker.register(compiled)`: a program of a worker."""

    def __init__(self, worker: DistributedWorker, compiled: Compiled) -> None:
        self.worker = worker
        self.compiled = compiled
        self.closed = False

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it."""
        return self.worker.run(self.compiled, *args, **named)


class Submitted:
    """`worker.submit(...)`: a call that has been made."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        """What the call returned."""
        return self._value

    def done(self) -> bool:
        """Yes."""
        return True

    wait = result


class _Allocations:
    """What a test of upstream's looks at: how often windows have been allocated."""

    def __init__(self) -> None:
        self._next_alloc_id = 0


class DistributedWorker:
    """`compiled.prepare(...)`, or `DistributedWorker([a, b])`: programs that share a set-up.

    persistent: windows stay allocated between calls, zeroed before each later one unless
    reset_persistent_windows is False.
    """

    def __init__(
        self, programs: Any, config: Any = None, *, persistent: bool = False,
        reset_persistent_windows: bool = True,
        sub_worker_overrides: Mapping[str, Callable[..., Any]] | None = None,
        **_options: Any,
    ) -> None:
        self.programs: list[Compiled] = (
            list(programs) if isinstance(programs, list | tuple) else [programs]
        )
        self.config = config
        self.closed = False
        self._retains = persistent and not reset_persistent_windows
        self._persistent = persistent
        self._kept: dict[int, list[list[bytes]]] = {}
        self._overrides = dict(sub_worker_overrides or {})
        self._owned_tensors: list[DeviceTensor] = []
        self._handles: list[Handle] = []
        self._w = _Allocations()
        names = {
            name for one in self.programs for name, each in one.functions.items()
            if each.kind == "sub_worker"
        }
        unknown = sorted(set(self._overrides) - names)
        if unknown:
            raise ValueError(
                f"sub_worker_overrides: {', '.join(unknown)} are not sub-workers of the program"
            )

    def __enter__(self) -> DistributedWorker:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __call__(self, *args: Any, config: Any = None, **named: Any) -> Any:
        """Call the one program. Raises PldRuleError (several_programs) where there are several."""
        if len(self.programs) > 1:
            raise SeveralPrograms(
                "several_programs", "a call of a worker with several programs is ambiguous: use "
                "rt.run(compiled, ...)"
            )
        return self.run(self.programs[0], *args, config=config, **named)

    def run(self, compiled: Compiled, *args: Any, config: Any = None, **named: Any) -> Any:
        """Call one of the programs. Raises RuntimeError after close, PldRuleError (not_shared)."""
        self._check_open("run")
        for name, value in zip(compiled.function.names, args, strict=False):
            if isinstance(value, torch.Tensor) and not value.is_shared():  # type: ignore[no-untyped-call]
                raise broken(
                    "not_shared",
                    f"{compiled.function.name}: {name} is not in shared memory, so the worker does "
                    f"not see it; call {name}.share_memory_() before prepare()",
                )
        key = id(compiled)
        if not self._persistent or key not in self._kept:
            self._w._next_alloc_id += 1
        kept = self._kept.get(key) if self._retains else None
        value, windows = made_call(
            compiled, args, named, compiled.device_ids, kept=kept, overrides=self._overrides,
            retains=self._retains,
        )
        self._kept[key] = windows
        return value

    def submit(self, compiled: Compiled, *args: Any, **named: Any) -> Submitted:
        """Call one of the programs; the call has ended when this returns."""
        return Submitted(self.run(compiled, *args, **named))

    def register(self, compiled: Compiled) -> Handle:
        """A handle of one of the programs. Raises RuntimeError after close."""
        self._check_open("register")
        handle = Handle(self, compiled)
        self._handles.append(handle)
        return handle

    def alloc_tensor(
        self, shape: Sequence[int], dtype: torch.dtype, init: torch.Tensor | None = None
    ) -> DeviceTensor:
        """Memory that stays with the worker; zeros, or a copy of `init`."""
        self._check_open("alloc_tensor")
        held = torch.zeros(tuple(shape), dtype=dtype).share_memory_()  # type: ignore[no-untyped-call]
        if init is not None:
            held.copy_(init)
        made = DeviceTensor(held)
        self._owned_tensors.append(made)
        return made

    def free_tensor(self, tensor: DeviceTensor) -> None:
        """End its life."""
        self._owned_tensors.remove(tensor)

    def alloc_stacked_tensor(
        self, source: torch.Tensor, *, worker_ids: Sequence[int] | None = None
    ) -> StackedDeviceTensor:
        """A copy of `source`, part i on card i or worker_ids[i]."""
        self._check_open("alloc_stacked_tensor")
        ids = range(source.shape[0]) if worker_ids is None else worker_ids
        copy = source.detach().clone().share_memory_()  # type: ignore[no-untyped-call]
        made = StackedDeviceTensor(copy, ids)
        self._owned_tensors.append(made)
        return made

    def free_stacked_tensor(self, tensor: StackedDeviceTensor) -> None:
        """End its life."""
        self._owned_tensors.remove(tensor)

    def copy_stacked_from(self, tensor: StackedDeviceTensor, target: torch.Tensor) -> None:
        """Read all of its parts."""
        target.copy_(tensor.tensor)

    def release_inherited_host_tensor_refs(self) -> None:
        """Nothing is held for processes that do not exist."""

    def copy_to(self, tensor: DeviceTensor, source: torch.Tensor) -> None:
        """Fill a worker's tensor."""
        tensor.tensor.copy_(source)

    def copy_from(self, tensor: DeviceTensor, target: torch.Tensor) -> None:
        """Read a worker's tensor."""
        target.copy_(tensor.tensor)

    def close(self) -> None:
        """End the worker, its handles and its tensors."""
        self.closed = True
        self._owned_tensors.clear()
        for handle in self._handles:
            handle.closed = True

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise RuntimeError(f"DistributedWorker.{what} called after close()")
