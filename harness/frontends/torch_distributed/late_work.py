"""Handles of calls that were not simply made: dropped, held back, or with a result that is changed.

A C++ caller (DDP's reducer) sees a handle's `wait` and `get_future` only, and waits for the future in
C++: so a call that is held back goes out by a timer at the latest, not only with the next one.
Not modelled: `source_rank`, profiling, synchronising with a stream before the call went out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import Work
from torch.futures import Future

HELD_SECONDS = 0.5


class LateWork(Work):
    """The handle of a call that `issue` makes, once; None is what a dropped call gives.

    outputs: what its future has. changed: called once when the call is complete.
    """

    def __init__(
        self, issue: Callable[[], Work | None], outputs: list[Tensor],
        changed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._issue = issue
        self._outputs = outputs
        self._changed = changed
        self._real: Work | None = None
        self._issued = False
        self._future: Future[Any] | None = None
        self._lock = threading.RLock()

    def go_out(self) -> Work | None:
        """Make the call, if that has not been done."""
        with self._lock:
            if not self._issued:
                self._issued = True
                self._real = self._issue()
                if self._future is not None:
                    self._link(self._future)
            return self._real

    def _complete(self) -> None:
        with self._lock:
            changed, self._changed = self._changed, None
        if changed is not None:
            changed()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the real one, as long as it would."""
        real = self.go_out()
        if real is not None:
            real.wait(timeout) if timeout else real.wait()
        self._complete()
        return True

    def is_completed(self) -> bool:
        """Whether the real one is; a dropped call always is."""
        real = self.go_out()
        done = real is None or real.is_completed()
        if done and (real is None or real.is_success()):
            self._complete()
        return done

    def is_success(self) -> bool:
        """Whether the real one is."""
        real = self.go_out()
        return real is None or real.is_success()

    def exception(self) -> Any:
        """The real one's."""
        real = self.go_out()
        return None if real is None else real.exception()

    def result(self) -> list[Tensor]:
        """The outputs."""
        return self._outputs

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def get_future(self) -> Future[Any]:
        """One that has the outputs once the call is complete."""
        with self._lock:
            if self._future is None:
                self._future = Future()
                if self._issued:
                    self._link(self._future)
                else:
                    timer = threading.Timer(HELD_SECONDS, self.go_out)
                    timer.daemon = True
                    timer.start()
            return self._future

    def _link(self, future: Future[Any]) -> None:
        if self._real is None:
            self._complete()
            future.set_result(self._outputs)
            return

        def done(real: Future[Any]) -> None:
            try:
                real.value()
            except Exception as error:
                future.set_exception(error)
                return
            self._complete()
            future.set_result(self._outputs)

        self._real.get_future().add_done_callback(done)
