"""What this store has dumped and not committed, and what it committed of blocks that are not whole yet.

The table behind "the store that dumped a block may load it, everybody else misses", and behind commit
and drop: every shard that this store dumped of a block, or none. Holds no data and touches no disk.
What is remembered of a committed shard goes when the block is seen whole.
"""

from __future__ import annotations

from systems.store.errors import DumpDropped, DumpRunning
from systems.store.real import Lock
from systems.store.stage import Dump, Key


class Dumps:
    """Dumps by block and shard, each running, ready, committing or gone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._dumps: dict[bytes, dict[int, Dump]] = {}
        self._committed: set[Key] = set()  # own shards of blocks that were not whole when last seen

    def announce(self, block_id: bytes, shard: int) -> Dump:
        """A new dump, running; an earlier one of the same shard is replaced."""
        dump = Dump(block_id, shard)
        with self._lock:
            shards = self._dumps.setdefault(block_id, {})
            old = shards.get(shard)
            shards[shard] = dump
            if old is not None:
                dump.residue = old.path if old.state == "ready" else ""
                old.state = "gone"
        return dump

    def require_running(self, dump: Dump) -> None:
        """Still wanted, or DumpDropped."""
        if dump.state != "running":
            raise DumpDropped("dropped, or dumped again, before this dump was done")

    def succeeded(self, dump: Dump) -> None:
        """Its file is complete: from now on it may be loaded here and committed; or DumpDropped."""
        with self._lock:
            self.require_running(dump)
            dump.state = "ready"

    def failed(self, dump: Dump) -> None:
        """Its file is not there, or not complete: never to be loaded nor committed."""
        self._forget(dump)

    def take_back(self, dump: Dump) -> list[str]:
        """It is not wanted any more; the files to remove. A running one removes its own when done."""
        with self._lock:
            state = dump.state
            if state == "committing":
                return []
        self._forget(dump)
        return [path for path in (dump.residue, dump.path if state == "ready" else "") if path]

    def of(self, block_id: bytes) -> list[Dump]:
        """Every shard's dump."""
        with self._lock:
            return list(self._dumps.get(block_id, {}).values())

    def ids(self) -> list[bytes]:
        """The blocks with dumps."""
        with self._lock:
            return list(self._dumps)

    def claim(self, block_id: bytes) -> list[Dump]:
        """Every shard's dump, now committing; DumpRunning, and no change, where one is not ready."""
        with self._lock:
            dumps = list(self._dumps.get(block_id, {}).values())
            busy = [dump for dump in dumps if dump.state != "ready"]
            if busy:
                what = "dump" if busy[0].state == "running" else "commit"
                raise DumpRunning(f"the {what} is still running")
            for dump in dumps:
                dump.state = "committing"
            return dumps

    def release(self, dumps: list[Dump]) -> None:
        """The commit is over; what it did not reach may be committed again."""
        with self._lock:
            for dump in dumps:
                if dump.state == "committing":
                    dump.state = "ready"

    def committed(self, dump: Dump, *, whole: bool) -> None:
        """Its file has its final name; the block may be short of other stores' shards."""
        with self._lock:
            if not whole:
                self._committed.add(dump.key)
        self._forget(dump)

    def seen_whole(self, block_id: bytes, shard: int) -> None:
        """Everybody may load it now."""
        if self._committed:
            with self._lock:
                self._committed.discard((block_id, shard))

    def may_load(self, block_id: bytes, shard: int) -> bool:
        """Whether this store committed the shard itself, so that it need not wait for the others."""
        return (block_id, shard) in self._committed

    def own(self, block_id: bytes, shard: int) -> str:
        """The file of a complete dump that only this store may see, or ""."""
        with self._lock:
            dump = self._dumps.get(block_id, {}).get(shard)
            return dump.path if dump is not None and dump.state in ("ready", "committing") else ""

    def _forget(self, dump: Dump) -> None:
        block_id, shard = dump.key
        with self._lock:
            dump.state = "gone"
            shards = self._dumps.get(block_id, {})
            if shards.get(shard) is dump:
                del shards[shard]
            if not shards:
                self._dumps.pop(block_id, None)
