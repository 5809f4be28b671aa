"""The embedded store in one thread, without ranks: jobs run where they are submitted, time is a number.

For scenarios in which the disk is what varies, thousands of times: a store opens in a fraction of a
millisecond here. Not modelled: concurrency (the other scenarios of the store have that).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from harness import SimulatedDisk
from systems.store import UcmConnectorFactory
from systems.store.front import BlockStore

logging.getLogger("ucm").addHandler(logging.NullHandler())


class _Event:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None) -> bool:
        return self._set

    def is_set(self) -> bool:
        return self._set


class _Workers:
    def submit(self, job: Callable[[], None]) -> None:
        job()

    def close(self) -> None:
        pass

    def event(self) -> _Event:
        return _Event()


class _Clock:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds

    def time(self) -> float:
        return self._seconds


def open_alone(disk: SimulatedDisk, seconds: float, **config: Any) -> BlockStore:
    """A store on `disk`, whose clocks stand at `seconds`."""
    return UcmConnectorFactory.create_connector(
        "UcmPipelineStore", {"store_pipeline": "Posix", "workers": 1, "alignment": 512, **config},
        disk=disk, executor=_Workers(), clock=_Clock(seconds),
    )
