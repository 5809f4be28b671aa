"""One rank's real process: a user's torch.distributed script, run as it is, behind an interposed group.

Forked by the zygote for `run_real`, or by the supervisor that torchrun has started on each rank
(torchrun.py). The script is `__main__`, has its own arguments and folder, and the environment that
torchrun would give it. An uncaught error ends it with its traceback and exit code 1, as Python does.

Not modelled: `python -m module` as the script, atexit handlers of the script.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
from torch._C import _distributed_c10d as distributed_c10d

from harness import registry
from harness.errors import PlanError, nearest
from harness.frontends.torch_distributed.interposed import Door, install
from harness.frontends.torch_distributed.recorded import Fired, append
from harness.plan import Fault, convert
from harness.resolver import without_dns

CLONE_NEWNET = 0x40000000


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one rank is to do. faults: as in a plan. limit: the longest time-out of its groups, seconds.
    network: the process whose network namespace it lives in, 0 = everybody's. pauses: before these
    calls it waits for the harness. near: all ranks are on this machine."""

    path: str
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    folder: str = "."
    faults: tuple[dict[str, Any], ...] = ()
    limit: float = 10.0
    backend: str = ""
    network: int = 0
    pauses: tuple[int, ...] = ()
    near: bool = False


def decoded(faults: Sequence[dict[str, Any]], what: str) -> tuple[Fault, ...]:
    """Faults from plain data, strictly. Raises PlanError naming the field."""
    known, found = registry.faults() if faults else {}, []
    for index, data in enumerate(faults):
        name = data.get("fault")
        if not isinstance(name, str) or name not in known:
            raise PlanError(
                f"{what}: faults[{index}].fault: no fault is called {name!r}; {nearest(str(name), known)}"
            )
        fault = convert(data, known[name], f"{what}: faults[{index}] ({name})")
        if "torchrun" not in fault.fabrics:
            raise PlanError(
                f"{what}: faults[{index}]: {name} needs fabric {' or '.join(fault.fabrics)}, "
                "given torchrun"
            )
        found.append(fault)
    return tuple(found)


def begin(value: dict[str, Any], fds: list[int]) -> None:
    """The body of a forked rank. fds: what takes its calls, and its standard output."""
    part = convert(value, Part, "a rank's part")
    record, out = fds
    os.dup2(out, 1)
    if part.network:
        enter_network(part.network)
    perform(part, record)


def perform(part: Part, record: int) -> None:
    """Run the script in this process, which ends with it. Raises SystemExit where Python would end."""
    os.chdir(part.folder)
    os.environ.update(part.env)
    distributed_c10d.set_debug_level_from_env()  # c10d has looked when it was imported
    rank = int(os.environ["RANK"])
    faults = decoded(part.faults, "a rank's part")
    for index, fault in enumerate(faults):
        if fault.starts and fault.rank == rank:
            append(record, Fired(index))
            fault.deed()()
    door = Door(
        faults, limit=part.limit, record=record, backend=part.backend, pauses=part.pauses,
        near=part.near,
    )
    install(door)
    sys.argv = [part.path, *part.argv]
    sys.path.insert(0, os.path.dirname(os.path.abspath(part.path)))
    try:
        runpy.run_path(part.path, run_name="__main__")
        door.finish()
    except SystemExit as error:
        door.finish()
        raise SystemExit(_exit_code(error.code)) from None
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        os.utime(record)  # when the script was over: the order of bad ends (real_ranks.py)


def _exit_code(given: Any) -> int:
    """The exit code that Python would make of it."""
    if given is None or isinstance(given, int):
        return given or 0
    sys.stderr.write(f"{given}\n")
    return 1


def enter_network(pid: int) -> None:
    """Live in the network namespace of the process `pid` from now on; this thread's only."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"the network of process {pid} cannot be entered")
    finally:
        os.close(fd)


def serve(value: list[Any], fds: list[int]) -> None:
    """Be the rendezvous store of a world until killed, as torchrun's agent is; writes its port."""
    host, network = value
    without_dns()
    if network:
        enter_network(network)
    store = distributed_c10d.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    os.write(fds[0], str(store.port).encode())
    while True:
        signal.pause()
