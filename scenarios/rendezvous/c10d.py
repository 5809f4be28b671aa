"""torch.distributed's TCPStore and FileStore, as a subject process drives them."""

from __future__ import annotations

from datetime import timedelta

from torch._C._distributed_c10d import FileStore, Store, TCPStore

HOST = "127.0.0.1"


class Server:
    """Who holds a TCPStore's data."""

    def start(self, libuv: bool) -> int:  # noqa: FBT001 - it arrives from another process
        """Listen; the port."""
        self._store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False, use_libuv=libuv)
        return int(self._store.port)


class Client:
    """One client of either store. Keys and values are text."""

    _store: Store

    def connect(self, port: int, seconds: float, libuv: bool) -> None:  # noqa: FBT001
        """Use the TCPStore that listens there."""
        self._store = TCPStore(
            HOST, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds),
            use_libuv=libuv,
        )

    def open(self, path: str, seconds: float) -> None:
        """Use the FileStore in that file."""
        self._store = FileStore(path, -1)
        self._store.set_timeout(timedelta(seconds=seconds))

    def set(self, key: str, value: str) -> None:
        """Give the key a value."""
        self._store.set(key, value)

    def get(self, key: str) -> str:
        """The value; waits for one to be set."""
        return str(self._store.get(key).decode())

    def add(self, key: str, amount: int) -> int:
        """Add to a counter."""
        return int(self._store.add(key, amount))

    def compare_set(self, key: str, expected: str, desired: str) -> str:
        """Set where the value is the one expected; what the key holds afterwards."""
        return str(self._store.compare_set(key, expected, desired).decode())
