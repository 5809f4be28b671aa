"""A user's torch.distributed script as a scenario: unchanged, P ranks in one process.

Each rank runs the file as its `__main__` under the variables that torchrun would set (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, …), with its own arguments, modules and torch.distributed. Results are not
compared with a reference: the program's own assertions, its exit code and the checkers judge it.

Not modelled: several nodes (LOCAL_RANK is RANK), `__main__` guards of multiprocessing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch

from harness.checkers.torch_program import TorchProgram
from harness.errors import NoDevice, RankExited
from harness.frontends.kinds import compiled
from harness.frontends.torch_distributed.environment import Surroundings
from harness.frontends.torch_distributed.handles import waits
from harness.frontends.torch_distributed.outcome import came_to
from harness.frontends.torch_distributed.place import Place
from harness.frontends.torch_distributed.rank_threads import Threads
from harness.frontends.torch_distributed.watching import Watched, readers
from harness.frontends.torch_distributed.world import Founding, RankWorld
from harness.host import World
from harness.scenario import Scenario

USUAL_RANKS = 4


def _params(argv: tuple[str, ...]) -> type[msgspec.Struct]:
    """The params of a script: its command line, which the user gave."""
    return msgspec.defstruct(
        "ScriptParams", [("argv", tuple[str, ...], argv)], frozen=True, forbid_unknown_fields=True
    )


def variables(rank: int, size: int) -> dict[str, str]:
    """What torchrun sets, on one node."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank),
        "ROLE_NAME": "default", "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "OMP_NUM_THREADS": "1",
    }


def script_scenario(
    path: str, text: bytes, argv: tuple[str, ...] = (), *, ranks: tuple[int, int] = (1, 8),
    variables_of: Any = variables,
) -> Scenario:
    """The scenario of the script `text`, which is the file `path`.

    argv: the default of the scenario's parameter. variables_of: rank and world size -> the variables of
    its environment (a test's own, or a wrong one). Raises UserFileError for what does not compile.
    """
    code = compiled(path, text)

    def program(main: ModuleType) -> None:
        exec(code, main.__dict__)

    def host(world: World, given: Any) -> None:
        founding = Founding()
        for index in range(world.size):
            world.dispatch(
                functools.partial(run_rank, program, path, variables_of), founding, given.argv,
                device=index,
            )

    return Scenario(
        name=path, host=host, params=_params(argv), ranks=ranks, threads=True, given=("argv",),
        usual_ranks=(USUAL_RANKS, USUAL_RANKS),
        checkers=(TorchProgram(),), comes_to=came_to,
        doc=f"{path}, a torch.distributed program", digest=hashlib.sha256(text).hexdigest()[:16],
    )


def _wants_cuda(error: BaseException) -> bool:
    """Whether a program ends for want of a CUDA device."""
    return not torch.cuda.is_available() and bool(re.search(
        r"CUDA enabled|_cuda_|NVIDIA driver|CUDA GPUs are available|pinned memory|CUDA.*is_available",
        str(error),
    ))


def _launched(rank: Any, variables_of: Callable[[int, int], dict[str, str]]) -> dict[str, str]:
    """The variables that a rank is started with, as the plan's faults want them."""

    def launch(rank: int, size: int) -> dict[str, str]:
        return variables_of(rank, size)

    if not rank._faults:
        return launch(rank.index, rank.size)
    found: dict[str, str] = rank._offer("launch", launch, rank=rank.index, size=rank.size)
    return found


def _forget_meshes() -> None:
    """What torch keeps of DTensors by thread, with their meshes and groups: threads outlive runs."""
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import debug

        forget: Any = debug._clear_sharding_prop_cache  # untyped
        forget()


def run_rank(
    program: Callable[[ModuleType], None], path: str, variables_of: Any, rank: Any, founding: Founding,
    argv: tuple[str, ...],
) -> None:
    """One rank: `program`, given its `__main__`, in the surroundings of the script `path`."""
    place = Place(rank)
    world = RankWorld(place, founding)
    threads = Threads(place, world)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=os.path.abspath(path), __builtins__=__builtins__)
    surroundings = place.surroundings = Surroundings(
        rank.index, str(Path(path).resolve().parent), main, (path, *argv),
        _launched(rank, variables_of),
        [*world.entries(), *readers(place), waits(place), *threads.doors()],
    )
    rank._state.printed = surroundings.out
    place.sim.at_end.append(surroundings.leave)  # a lane may be left behind in native code
    place.follow_sleep()
    _forget_meshes()
    surroundings.enter()
    threads.begin()
    try:
        with Watched(place):
            try:
                program(main)
            except (Exception, SystemExit) as error:
                surroundings.exit()
                if _wants_cuda(error):
                    raise NoDevice(f"rank {rank.index}: no CUDA here: {error}").with_traceback(
                        error.__traceback__
                    ) from None
                raise
            threads.join()
            surroundings.exit()
    except SystemExit as error:
        if error.code not in (None, 0):
            number = error.code if isinstance(error.code, int) else 1
            told = f"rank {rank.index}: the script ended itself with sys.exit({error.code!r})"
            raise RankExited(rank.index, number, told).with_traceback(error.__traceback__) from None
    finally:
        threads.end()
        world.end()
        place.end()
        surroundings.leave()
