"""Scripts of torch_programs/ on real gloo: one forked process a rank, every run under a deadline.

`ran` starts a world as torchrun would (environment, the rendezvous store held by the parent) but forks
its ranks from a process that has imported torch: 0.1 s instead of 10. `outcome` says in a few words what
the user of such a script gets to see: an error, an abort by signal, a time-out, or nothing. The default
time-out of a process group, 30 minutes, is set to `GROUP_SECONDS`.
"""

from __future__ import annotations

import os
import runpy
import sys
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch.distributed as dist
from planted import Program, programs_in

from harness.ambient import now
from harness.supervise import Ending, supervised

PROGRAMS = Path(__file__).with_name("torch_programs")
GROUP_SECONDS = 5.0
WORLD_SECONDS = 40.0
# At both ends of every connection c10d looks up the other's name by DNS (127.0.0.1 as ::ffff:127.0.0.1 is
# not in /etc/hosts): an answer that is lost would hold the world up for 5 s, longer than GROUP_SECONDS.
RESOLVER = "timeout:1 attempts:1"


def programs(kind: str) -> list[Program]:
    """The `correct` or the `defective` ones, by name."""
    return programs_in(PROGRAMS / kind)


def be_rank(value: dict, _: list[int]) -> None:
    """The body of a rank's process."""
    os.environ.update(value["environment"])
    os.chdir(value["folder"])
    sys.argv[:] = [value["script"]]
    dist.set_debug_level_from_env()
    dist.distributed_c10d.default_pg_timeout = timedelta(seconds=GROUP_SECONDS)
    runpy.run_path(value["script"], run_name="__main__")


class World(NamedTuple):
    """What became of one world: how each rank ended (None: not by the deadline), and after how long."""

    endings: list[Ending | None]
    seconds: float

    @property
    def printed(self) -> list[str]:
        """The lines `rank N: …` of all ranks, in their order."""
        return [
            line
            for ending in self.endings
            if ending is not None
            for line in ending.log.splitlines()
            if line.startswith("rank ")
        ]

    @property
    def outcome(self) -> str:
        """`silent`, `error`, `time-out` (an error, but only then), `abort` by a signal, or `hang`."""
        if any(ending is not None and ending.code < 0 for ending in self.endings):
            return "abort"
        if any(ending is None for ending in self.endings):
            return "hang"
        if not any(ending.code for ending in self.endings):
            return "silent"
        return "time-out" if self.seconds >= GROUP_SECONDS else "error"

    @property
    def told(self) -> str:
        """All that the ranks printed."""
        return "\n".join(ending.log for ending in self.endings if ending is not None)


def ran(script: Path, ranks: int, folder: Path, *, detail: bool = False) -> World:
    """The script in a world of so many ranks, which are gone when this returns."""
    children = []
    with mock.patch.dict(os.environ, RES_OPTIONS=RESOLVER):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCH_DISTRIBUTED_DEBUG": "DETAIL" if detail else "OFF",
            "GLOO_SOCKET_IFNAME": "lo",
            "RES_OPTIONS": RESOLVER,
        }
        started = now()
        try:
            for rank in range(ranks):
                environment = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                value = {"environment": environment, "script": str(script), "folder": str(folder)}
                children.append(supervised("gloo_worlds:be_rank", value))
            until = started + WORLD_SECONDS
            endings = [child.ended(within=max(0.0, until - now())) for child in children]
            return World(endings, now() - started)
        finally:
            for child in children:
                child.close()
            del store
