"""Handles of asynchronous operations: torch's Work and Future, whose waits are scheduling points.

DDP's reducer takes the future of an all_reduce and waits for it in C++, where no other rank could have
its turn. Its wait stands in a callback of the autograd engine, and callbacks run in the order in which
they were queued: so a future that is handed out during a backward pass first queues one that waits in
Python. Elsewhere `WorkFuture.wait` does, and for futures that native code derives, `waits`. A future's
callbacks run in their own rank, when it finds the work complete. Not modelled: native code that waits for
a future by itself outside a backward pass (it blocks its rank: a finding after ten seconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from harness.frontends.torch_distributed.environment import Entry
from harness.frontends.torch_distributed.place import Place
from harness.frontends.torch_distributed.stores import seconds_of

if TYPE_CHECKING:
    from harness.frontends.torch_distributed.exchange import Part

_NO_LIMIT = timedelta(0)
_native_wait: Any = torch._C.Future.wait


class SimulatedWork(dist.Work):
    """One rank's part in a collective or message, as its program may wait for it."""

    def __init__(self, place: Place, part: Part, timeout: timedelta | None) -> None:
        super().__init__()
        self._place = place
        self._part = part
        self._timeout = timeout
        self._waited = False
        self._future: WorkFuture | None = None

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """Until it is complete; its tensors are the program's own again. Raises what went wrong:
        CollectiveMismatch, DistBackendError (a time limit, a dead peer)."""
        part = self._part
        if not self._waited:
            _, code, lasti = self._place.here()
            self._place.waits[part.op.number] = code, lasti
            seconds = seconds_of(timeout if timeout > _NO_LIMIT else self._timeout)
            if not self._place.await_work(part.op, seconds, lambda: part.told):
                assert seconds is not None
                part.expire(seconds)
            self._ended()
        if part.error is not None:
            raise part.error
        return True

    def _ended(self) -> None:
        self._waited = True
        self._part.end_uses()
        self._place.outstanding.pop(self._part.op.number, None)
        self._place.futured.pop(self._part.op.number, None)
        if self._future is not None:
            self._future.settle(self._part)

    def abandon(self) -> None:
        """The program has ended without waiting for it: native code, too, is to forget it."""
        self._part.end_uses()
        self._waited, self._part.error = True, None
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            for tensor in self._part.outputs[:1]:
                torch.ops._c10d_functional.wait_tensor(tensor)

    def is_completed(self) -> bool:
        """Whether it is, asked at a scheduling point."""
        if self._waited:
            return True
        _, code, lasti = self._place.here()
        done = self._place.poll(self._part.op, code, lasti)
        if done:
            self._place.waits.setdefault(self._part.op.number, (code, lasti))
            self._ended()
        return done

    @property
    def done(self) -> bool:
        """Whether it is complete; no scheduling point."""
        return self._part.op.done

    def is_success(self) -> bool:
        """Whether it is complete and nothing went wrong."""
        return self.done and self._part.error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._part.error

    def synchronize(self) -> None:
        """The same as wait."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same as wait: a CPU has no stream."""
        self.wait()

    def source_rank(self) -> int:
        """Of a recv: the group rank of the sender."""
        return self._part.source

    _source_rank = source_rank

    def result(self) -> list[torch.Tensor]:
        """The tensors that it fills."""
        return list(self._part.outputs)

    def get_future(self) -> WorkFuture:
        """A future of `result()`."""
        if self._future is None:
            self._future = WorkFuture(self)
            if self._part.op.done:
                self._future.settle(self._part)
        if not self._waited:
            self._place.futured[self._part.op.number] = self
        if not self._waited and torch._C._current_graph_task_id() >= 0:
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self.wait)
        return self._future

    getFuture = get_future


def waits(place: Place) -> Entry:
    """torch's own wait for a future, which would block all ranks: what a rank sees of it.

    A future that native code has derived from a work's (DDP under Join, collect_all) is complete as soon
    as the works are; they are waited for in the order in which their futures were asked for.
    """
    def wait(future: Any) -> Any:
        for work in [*place.futured.values()]:
            if not torch._C.Future.done(future) or work.done:
                work.wait()
        return _native_wait(future)

    return torch._C.Future, "wait", wait


class WorkFuture(torch.futures.Future[Any]):
    """The future of a work. Callbacks run in the rank's own lane, when it finds the work complete."""

    def __init__(self, work: SimulatedWork) -> None:
        super().__init__()
        self._work = work
        self._settled = False

    def settle(self, part: Part) -> None:
        """The work is complete."""
        if self._settled:
            return
        self._settled = True
        if part.error is not None:
            self.set_exception(part.error)
        else:
            self.set_result(list(part.outputs))

    def wait(self) -> Any:
        """The result. Raises what went wrong."""
        self._work.wait()
        return _native_wait(self)

    def then(self, callback: Any) -> WorkFuture:
        """A future of what `callback` makes of this one when it is complete."""
        following = WorkFuture(self._work)
        following._settled = True  # by the callback, not by the work

        def run(_: Any) -> None:
            try:
                following.set_result(callback(self))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following

    def value(self) -> Any:
        """The result of a future that is complete."""
        return super().value()

    def done(self) -> bool:
        """Whether it is complete, asked at a scheduling point."""
        return self._work.is_completed()


class Together(dist.Work):
    """Several works that were asked for in one call."""

    def __init__(self, works: Sequence[SimulatedWork]) -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta = _NO_LIMIT) -> bool:
        """For all of them."""
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Whether all are."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all are complete and nothing went wrong."""
        return all(work.is_success() for work in self._works)

    def result(self) -> list[torch.Tensor]:
        """The tensors that they fill."""
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of `result()`; complete, since native code cannot wait for several."""
        self.wait()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.result())
        return future



