"""The embedded store, ended at a chosen operation of its disk: by SIGKILL, or by the power.

Where restart and power_cut end a dump after so much time, these scenarios end it before its n-th disk
operation, so that every place of a dump and its commit can be tried, in each durability.

Not modelled: an operation that is half done when the end comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from harness import PowerCut, Scenario
from scenarios.store.adapters.bench import Bench
from scenarios.store.adapters.black_box import DEFAULT, Sizes, after_the_end, host_of
from scenarios.store.adapters.checker import StoreChecker
from scenarios.store.adapters.embedded import Embedded, EmbeddedFlushed, EmbeddedUnsynced
from systems.store.real import RealDisk

OPERATIONS_MAX = 63


class Ends(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """at: operations of the disk that are still done when other blocks are dumped and committed.
    log_flushed: of a power cut: names may be there whose data is not."""

    sizes: Sizes = DEFAULT
    at: Annotated[int, Meta(ge=0, le=OPERATIONS_MAX)] = 3
    log_flushed: bool = False


class _EndingDisk:
    """The real disk until `left` operations are done."""

    def __init__(self) -> None:
        self.left = -1
        self.end: Callable[[], None] = lambda: None
        self._disk = RealDisk()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def counted(*args: Any) -> Any:
            if self.left == 0:
                self.end()
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return method(*args)

        return counted


class _Ending:
    """What makes an embedded adapter end."""

    def _ports(self) -> dict[str, Any]:
        self.disk = _EndingDisk()
        return {"disk": self.disk}

    def end_at(self, operations: int, folder: str, how: str) -> None:
        """End after so many more operations; folder: whose power is cut then ("": nobody's)."""
        if folder:
            self.disk.end = lambda: PowerCut.cut_at(folder, log_flushed=how == "log_flushed")
        self.disk.left = operations


class Ending(_Ending, Embedded):
    """With fsync."""


class EndingFlushed(_Ending, EmbeddedFlushed):
    """With flush."""


class EndingUnsynced(_Ending, EmbeddedUnsynced):
    """With none."""


def _workload(end: Literal["kill", "cut"]) -> Callable[[Bench, Any], None]:
    def workload(bench: Bench, params: Ends) -> None:
        client, blocks = bench.open(), list(range(len(params.sizes)))
        others = [len(blocks) + block for block in blocks]
        bench.store(client, blocks)
        how = "log_flushed" if params.log_flushed else "log_lost"
        bench.ends(client, "end_at", params.at, bench.folder if end == "cut" else "", how)
        bench.store(client, others)
        if end == "cut":
            bench.cut(log_flushed=params.log_flushed)  # again, if the store had ended before
        else:
            bench.kill(client)
        bench.close(after_the_end(bench, blocks, others))

    return workload


def _scenario(adapter: type[Embedded], name: str, end: Literal["kill", "cut"]) -> Scenario:
    def disk(params: Any) -> PowerCut | None:
        return PowerCut() if end == "cut" else None

    told = "SIGKILL" if end == "kill" else "A power cut"
    return Scenario(
        name=f"store.embedded_{name}", host=host_of(adapter, _workload(end), disk), params=Ends,
        ranks=(1, 1), checkers=(StoreChecker(),),
        unavailable=PowerCut.unavailable if end == "cut" else None,
        doc=f"{told} at each operation of the disk. ({adapter.__name__})",
    )


killed = _scenario(EndingUnsynced, "killed_at", "kill")
cut = _scenario(Ending, "cut_at", "cut")
cut_flushed = _scenario(EndingFlushed, "flushed_cut_at", "cut")
cut_unsynced = _scenario(EndingUnsynced, "unsynced_cut_at", "cut")
