"""c10d's stores in a simulated world: TCPStore, FileStore and HashStore without socket or file.

Stores of one address share their keys. Every call is a scheduling point; `get` and `wait` block in
virtual time until the keys are there. Time limits hold only where the program gives one.

Not modelled: the server's death, key lists, the time a server needs to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from harness.fabric.works import Work
from harness.frontends.torch_distributed.place import Place

Address = tuple[Any, ...]


class Keys:
    """What all stores of one address hold, and who waits for what."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}
        self.waiting: list[tuple[Callable[[], bool], Work, Any]] = []

    def changed(self) -> None:
        """Let those go on whose keys are there now."""
        ready = [one for one in self.waiting if one[0]()]
        self.waiting = [one for one in self.waiting if one not in ready]
        for _, op, sim in ready:
            sim.work_may_complete(op)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def seconds_of(timeout: timedelta | None) -> float | None:
    """A time limit that the program gave, in seconds; None for torch's own defaults and no limit."""
    if timeout is None or isinstance(timeout, Unlimited) or timeout <= timedelta(0):
        return None
    return timeout.total_seconds()


class Unlimited(timedelta):
    """torch's default time limit, where the program gave none: a world that waits that long is blocked,
    and is told so at once."""


_Store: Any = torch._C._distributed_c10d.Store  # not exported to type checkers


class VirtualStore(_Store):  # type: ignore[misc]
    """A store as the ranks of a simulated world see it."""

    def __init__(self, place: Place, keys: Keys, address: Address, timeout: timedelta | None) -> None:
        super().__init__()
        self.address = address
        self._place = place
        self._keys = keys
        self._timeout = timeout
        place.kept.append(self)  # native code holds on to the store, but not to its methods

    def _do(self, kind: str, key: str, body: Callable[[], Any], *, reads: bool = False) -> Any:
        place = self._place
        _, code, lasti = place.here()

        def perform() -> Any:
            if reads:
                place.reads()
            place.point(kind)
            result = body()
            place.event(kind, place.index, 0, _bytes(key), -1, code, lasti)
            self._keys.changed()
            return result

        return place.offer(kind, perform, code, lasti)

    def set(self, key: str, value: str | bytes) -> None:
        """Hold `value` under `key`."""
        self._do("store_set", key, lambda: self._keys.held.__setitem__(key, _bytes(value)))

    def append(self, key: str, value: str | bytes) -> None:
        """Add to what `key` holds."""
        held = self._keys.held
        self._do("store_set", key, lambda: held.__setitem__(key, held.get(key, b"") + _bytes(value)))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Several at once."""
        pairs = {key: _bytes(value) for key, value in zip(keys, values, strict=True)}
        self._do("store_set", ",".join(keys), lambda: self._keys.held.update(pairs))

    def add(self, key: str, amount: int) -> int:
        """Count under `key`; returns the new count."""
        held = self._keys.held

        def add() -> int:
            count = int(held.get(key, b"0")) + amount
            held[key] = str(count).encode()
            return count

        if not amount:  # how programs ask for a count
            return int(self._do("store_count", key, add, reads=True))
        return int(self._do("store_add", key, add))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Hold `desired` if `expected` is held (or expected is empty and nothing is); what is held."""
        held = self._keys.held

        def swap() -> bytes:
            if held.get(key, b"") == _bytes(expected):
                held[key] = _bytes(desired)
            return held.get(key, _bytes(expected))

        return bytes(self._do("store_compare_set", key, swap))

    def delete_key(self, key: str) -> bool:
        """Whether there was one."""
        return self._do("store_delete_key", key, lambda: self._keys.held.pop(key, None)) is not None

    def num_keys(self) -> int:
        """How many are held."""
        return int(self._do("store_num_keys", "", lambda: len(self._keys.held), reads=True))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all are held."""
        wanted = list(keys)
        told = ",".join(wanted)
        return bool(self._do("store_check", told, lambda: self._there(wanted), reads=True))

    def get(self, key: str) -> bytes:
        """What `key` holds, as soon as it holds something. Raises DistStoreError at the time limit."""
        self._wait("store_get", [key], self._timeout)
        return self._keys.held[key]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Several at once."""
        self._wait("store_get", list(keys), self._timeout)
        return [self._keys.held[key] for key in keys]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until all are held. Raises DistStoreError at the time limit."""
        self._wait("store_wait", list(keys), self._timeout if timeout is None else timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """The time limit of `get` and `wait`."""
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        """The time limit of `get` and `wait`."""
        return dist.default_pg_timeout if self._timeout is None else self._timeout

    def has_extended_api(self) -> bool:
        """append, multi_get and multi_set are there."""
        return True

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Put `value` at the end of a queue."""
        queue = self._keys.queues.setdefault(key, deque())
        self._do("store_queue_push", key, lambda: queue.append(_bytes(value)))

    def queue_len(self, key: str) -> int:
        """The length of a queue."""
        queues = self._keys.queues
        return int(self._do("store_queue_len", key, lambda: len(queues.get(key, ())), reads=True))

    def queue_pop(self, key: str, block: bool = True) -> bytes:  # noqa: FBT001, FBT002 torch's own
        """The first value of a queue. Raises DistQueueEmptyError, or DistStoreError at the limit."""
        queue = self._keys.queues.setdefault(key, deque())
        if not block and not queue:
            raise dist.QueueEmptyError(f"queue {key!r} is empty")
        self._wait("store_queue_pop", [key], self._timeout, lambda: bool(queue))
        return queue.popleft()

    def _there(self, keys: list[str]) -> bool:
        return all(key in self._keys.held for key in keys)

    def _wait(
        self, kind: str, keys: list[str], timeout: timedelta | None,
        ready: Callable[[], bool] | None = None,
    ) -> None:
        place = self._place
        _, code, lasti = place.here()
        holds = ready or (lambda: self._there(keys))

        def perform() -> None:
            place.point(kind)
            told = ", ".join(keys)
            op = place.sim.work(place.lane, kind, told.encode, code, lasti)
            place.event(kind, place.index, 0, told.encode(), op.number, code, lasti)
            self._keys.waiting.append((holds, op, place.sim))
            self._keys.changed()
            seconds = seconds_of(timeout)
            if not place.await_work(op, seconds, lambda: kind):
                assert seconds is not None
                raise dist.DistStoreError(
                    f"{place.called(kind, code, lasti)}: wait timeout after {seconds * 1000:.0f}ms, "
                    f"keys: {told}"
                )

        place.offer(kind, perform, code, lasti)


class Shelf:
    """The stores of one run, by address."""

    def __init__(self) -> None:
        self._by_address: dict[Address, Keys] = {}
        self._private = 0

    def types(self, place: Place) -> dict[str, type[VirtualStore]]:
        """TCPStore, FileStore and HashStore as one rank sees them."""
        shelf = self

        class TCPStore(VirtualStore):
            def __init__(
                self, host_name: str, port: int, world_size: int | None = None,
                is_master: bool = False, timeout: timedelta | None = None,  # noqa: FBT001, FBT002
                *args: object, **kwargs: object,
            ) -> None:
                self.host, self.port = host_name, port
                super().__init__(place, *shelf.at(("tcp", host_name, port)), timeout)

        class FileStore(VirtualStore):
            def __init__(self, path: str, world_size: int = -1) -> None:
                self.path = path
                super().__init__(place, *shelf.at(("file", path)), None)

        class HashStore(VirtualStore):
            def __init__(self) -> None:
                shelf._private += 1
                super().__init__(place, *shelf.at(("hash", shelf._private)), None)

        return {"TCPStore": TCPStore, "FileStore": FileStore, "HashStore": HashStore}

    def at(self, address: Address) -> tuple[Keys, Address]:
        """The keys of an address."""
        return self._by_address.setdefault(address, Keys()), address
