"""A user's torch.distributed script as a scenario: unchanged, P ranks in one process.

Each rank runs the file as its `__main__` under the variables that torchrun would set (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, …), with its own arguments, modules and torch.distributed. Results are not
compared with a reference: the program's own assertions, its exit code and the checkers judge it.

Not modelled: several nodes (LOCAL_RANK is RANK), `__main__` guards of multiprocessing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from harness.checkers.torch_program import TorchProgram
from harness.errors import NoDevice, RankExited
from harness.frontends.kinds import compiled
from harness.frontends.torch_distributed.cuda_calls import call_names
from harness.frontends.torch_distributed.cuda_stand_in import Cards, Replaced, replaced
from harness.frontends.torch_distributed.cuda_tensors import tensor_names
from harness.frontends.torch_distributed.data_loading import loader_names
from harness.frontends.torch_distributed.environment import Surroundings
from harness.frontends.torch_distributed.event_loops import loop_names
from harness.frontends.torch_distributed.handles import waits
from harness.frontends.torch_distributed.outcome import came_to
from harness.frontends.torch_distributed.place import Place
from harness.frontends.torch_distributed.rank_threads import Threads
from harness.frontends.torch_distributed.sync_batch_norm import batch_norm_names
from harness.frontends.torch_distributed.watching import Watched, readers
from harness.frontends.torch_distributed.world import Founding, RankWorld
from harness.host import World
from harness.scenario import Scenario

USUAL_RANKS = 4
SAID_MAX = 160  # characters of what a script printed last, in the error of its exit


def _params(argv: tuple[str, ...], *, cuda: bool) -> type[msgspec.Struct]:
    """The params of a script, which the user gave: its command line, whether CUDA is said to be there."""
    return msgspec.defstruct(
        "ScriptParams", [("argv", tuple[str, ...], argv), ("cuda", bool, cuda)],
        frozen=True, forbid_unknown_fields=True,
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
    variables_of: Any = variables, cuda: bool = False,
) -> Scenario:
    """The scenario of the script `text`, which is the file `path`.

    argv: the default of the scenario's parameter. variables_of: rank and world size -> the variables of
    its environment (a test's own, or a wrong one). cuda: the default of the other parameter: what
    torch.cuda.is_available() says. Raises UserFileError for what does not compile.
    """
    code = compiled(path, text)

    def program(main: ModuleType) -> None:
        exec(code, main.__dict__)

    def host(world: World, given: Any) -> None:
        founding = Founding()
        for index in range(world.size):
            world.dispatch(
                functools.partial(run_rank, program, path, variables_of), founding, given.argv,
                given.cuda, device=index,
            )

    return Scenario(
        name=path, host=host, params=_params(argv, cuda=cuda), ranks=ranks, threads=True,
        given=("argv", "cuda"),
        usual_ranks=(USUAL_RANKS, USUAL_RANKS),
        checkers=(TorchProgram(),), comes_to=came_to,
        doc=f"{path}, a torch.distributed program", digest=hashlib.sha256(text).hexdigest()[:16],
    )


def _wants_cuda(error: BaseException, *, denied: bool) -> bool:
    """Whether a program ends for want of a CUDA device. denied: it has asked, and was told no."""
    if denied and isinstance(error, AssertionError | RuntimeError | SystemExit):
        frames = traceback.extract_tb(error.__traceback__)
        said = f"{error} {frames[-1].line if frames else ''}"
        if re.search(r"(?i)\bcuda|\bgpu|\bnccl", said):
            return True
    return bool(re.search(
        r"CUDA enabled|_cuda_|NVIDIA driver|CUDA GPUs are available|pinned memory|CUDA.*is_available"
        r"|support for cuda|dummy base class|requires CUDA support|accelerator device when none",
        str(error),
    )) and not isinstance(error, NoDevice)


def _launched(rank: Any, variables_of: Callable[[int, int], dict[str, str]]) -> dict[str, str]:
    """The variables that a rank is started with, as the plan's faults want them."""

    def launch(rank: int, size: int) -> dict[str, str]:
        return variables_of(rank, size)

    if not rank._faults:
        return launch(rank.index, rank.size)
    found: dict[str, str] = rank._offer("launch", launch, rank=rank.index, size=rank.size)
    return found


@functools.cache
def _stand_ins() -> tuple[Replaced, ...]:
    return (*tensor_names(), *call_names(), *batch_norm_names(), *loader_names(), *loop_names())


def stood_in() -> Callable[[], None]:
    """Let what stands in for CUDA, DataLoader, event loops take its place; returns what ends that."""
    during = contextlib.ExitStack()
    during.enter_context(replaced(_stand_ins()))
    return during.close


def _forget_meshes() -> None:
    """What torch keeps of DTensors by thread, with their meshes and groups: threads outlive runs."""
    if "torch.distributed.tensor" in sys.modules:
        from torch.distributed.tensor import debug

        forget: Any = debug._clear_sharding_prop_cache  # untyped
        forget()


def run_rank(
    program: Callable[[ModuleType], None], path: str, variables_of: Any, rank: Any, founding: Founding,
    argv: tuple[str, ...], cuda: bool = False,  # noqa: FBT001, FBT002
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
    surroundings.cards = Cards(rank.index, place.sim.ambient.clock, available=cuda)
    rank._state.printed = surroundings.out
    if not founding.stood_in:
        founding.stood_in = True
        place.sim.at_end.append(stood_in())
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
                if _wants_cuda(error, denied=surroundings.cards.denied):
                    told = str(error) or "the program has asked, and was told no"
                    raise NoDevice(f"rank {rank.index}: no CUDA here: {told}").with_traceback(
                        error.__traceback__
                    ) from None
                raise
            threads.join()
            surroundings.exit()
    except SystemExit as error:
        if error.code not in (None, 0):
            number = error.code if isinstance(error.code, int) else 1
            told = f"rank {rank.index}: the script ended itself with sys.exit({error.code!r})"
            said = surroundings.out.text.rstrip().rpartition("\n")[2]
            if said and number == error.code:  # argparse, say, prints what it wants
                told += f", after printing {said[-SAID_MAX:]!r}"
            raise RankExited(rank.index, number, told).with_traceback(error.__traceback__) from None
    finally:
        threads.end()
        world.end()
        place.end()
        surroundings.leave()
