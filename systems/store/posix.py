"""The Posix stage: one file for each (block id, shard), whole or absent.

A dump writes `<hex id>.<shard>of<shards>.<writer>-<n>.tmp`, a name nobody else writes; commit renames
it to `<hex id>.<shard>of<shards>.kv`. The name is the commit marker: readers look at nothing else, so
visibility survives a restart and needs no lock between processes. Folders are named by a stable hash
of the id. Durability: `none` asks nothing of the disk; `flush` makes a file's data durable before it can
be committed, so that power loss may lose a block and never tear one; `fsync` makes the names durable too.
Not modelled: a folder that another machine's clock makes look old (residue is judged by file times).
"""

from __future__ import annotations

import os
import zlib

from systems.store.blockfile import HEADER_BYTES, Files, Header, checksum
from systems.store.capacity import Sweep, prepare
from systems.store.config import StoreConfig
from systems.store.errors import (
    BlockNotFound,
    DiskFailed,
    DiskFull,
    DumpDropped,
    DumpRunning,
)
from systems.store.front import BlockStore
from systems.store.log import POSIX
from systems.store.piece import Piece
from systems.store.ports import Clock, Disk
from systems.store.real import Lock
from systems.store.stage import Dump, Key, Stage

FOLDERS = 256
NAMES_TRIED = 1000


class PosixStage:
    """Blocks as files under `storage_path`/data."""

    name = "Posix"

    def __init__(self, config: StoreConfig, disk: Disk, clock: Clock) -> None:
        self._config = config
        self._disk = disk
        self._lock = Lock()
        self._dumps: dict[bytes, dict[int, Dump]] = {}
        self._reading: dict[Key, int] = {}
        self._anchored: set[str] = set()  # folders whose own names are known to be durable
        self._writer = config.writer or f"{os.uname().nodename.replace('.', '-')}-{os.getpid()}"
        self._written = 0
        self._data = os.path.join(config.storage_path, "data")
        self._names = [f"{self._data}/{number:02x}/" for number in range(FOLDERS)]
        self._ends = [f".{shard}of{config.shards}" for shard in range(config.shards)]
        prepare(config, disk, self._data, self._writer)
        self._files = Files(disk, config.alignment, direct=config.io_direct)
        self._sweep = Sweep(disk, clock, self._data, config)
        self._sweep.start()
        POSIX.info("storage path %s", config.storage_path)

    def _path(self, block_id: bytes, shard: int) -> str:
        return f"{self._names[zlib.crc32(block_id) % FOLDERS]}{block_id.hex()}{self._ends[shard]}.kv"

    def begin(self, block_id: bytes, shard: int) -> Dump:
        """Announce a dump; an earlier one of the same shard that was not committed is replaced."""
        dump = Dump(block_id, shard)
        with self._lock:
            shards = self._dumps.setdefault(block_id, {})
            old = shards.get(shard)
            shards[shard] = dump
            if old is not None:
                dump.residue = old.path if old.state == "ready" else ""
                old.state = "gone"
        return dump

    def write(self, dump: Dump, piece: Piece) -> None:
        """Write the temporary file; on any error nothing of it can be seen."""
        if dump.residue:
            self._remove(dump.residue)
        try:
            self._write(dump, piece)
        except BaseException:
            self._forget(dump)
            raise
        with self._lock:
            wanted = dump.state == "running"
            if wanted:
                dump.state = "ready"
        if not wanted:
            self._remove(dump.path)
            raise DumpDropped("dropped, or dumped again, before this dump was done")

    def _write(self, dump: Dump, piece: Piece) -> None:
        if dump.state != "running":
            raise DumpDropped("dropped before its dump began")
        block_id, shard = dump.key
        limit = self._config.capacity_bytes
        if limit and piece.length > limit:
            raise DiskFull(f"a block of {piece.length} bytes in a store of capacity_bytes {limit}")
        data = piece.outgoing()
        header = Header(block_id, shard, self._config.shards, piece.length, piece.dtype, checksum(data))
        sync = self._config.durability != "none"
        folder = self._names[zlib.crc32(block_id) % FOLDERS]
        made = False
        for _ in range(NAMES_TRIED):
            with self._lock:
                self._written += 1
                number = self._written
            dump.path = f"{folder}{block_id.hex()}{self._ends[shard]}.{self._writer}-{number}.tmp"
            try:
                self._files.create(dump.path, header, data, piece.address, sync=sync)
            except FileExistsError:
                continue  # a namesake in another container, or before a restart
            except FileNotFoundError as error:
                if made:
                    raise DiskFailed.of(error, f"dump to {dump.path}") from error
                self._make(folder)
                made = True
                continue
            except OSError as error:
                raise DiskFailed.of(error, f"dump to {dump.path}") from error
            dump.length = HEADER_BYTES + piece.length
            return
        raise DiskFailed(f"dump to {folder}: no free temporary name in {NAMES_TRIED}", 17)

    def _make(self, folder: str) -> None:
        self._anchored.discard(folder)
        try:
            self._disk.makedirs(folder)
        except OSError as error:
            raise DiskFailed.of(error, f"folder {folder}") from error

    def _forget(self, dump: Dump) -> None:
        block_id, shard = dump.key
        with self._lock:
            dump.state = "gone"
            shards = self._dumps.get(block_id, {})
            if shards.get(shard) is dump:
                del shards[shard]
            if not shards:
                self._dumps.pop(block_id, None)

    def _remove(self, path: str) -> None:
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            POSIX.warning("temporary file %s stays for now: %s", path, error)

    def abandon(self, dump: Dump) -> None:
        """Forget one dump; one that is running removes its own file when done."""
        with self._lock:
            state = dump.state
        if state == "committing":
            return
        self._forget(dump)
        for path in (dump.residue, dump.path if state == "ready" else ""):
            if path:
                self._remove(path)

    def drop(self, block_id: bytes) -> None:
        """Forget all that was dumped of a block and not committed."""
        with self._lock:
            dumps = list(self._dumps.get(block_id, {}).values())
        for dump in dumps:
            self.abandon(dump)

    def commit(self, block_id: bytes) -> None:
        """Rename each dumped shard. Failing half-way is harmless: call again, or drop the rest."""
        with self._lock:
            dumps = list(self._dumps.get(block_id, {}).values())
            busy = [dump for dump in dumps if dump.state != "ready"]
            if busy:
                raise DumpRunning(
                    f"the {'dump' if busy[0].state == 'running' else 'commit'} is still running"
                )
            for dump in dumps:
                dump.state = "committing"
        try:
            for dump in dumps:
                self._publish(dump)
            if not dumps and not self.visible(block_id):
                raise BlockNotFound("nothing to commit: not dumped here, or its dump failed, or dropped")
            self._anchor(block_id)
        finally:
            with self._lock:
                for dump in dumps:
                    if dump.state == "committing":
                        dump.state = "ready"
        self._collect(block_id, sum(dump.length for dump in dumps))

    def _collect(self, block_id: bytes, added: int) -> None:
        if self._sweep.over(added):
            with self._lock:
                busy_ids = {key[0] for key in self._reading} | {block_id}
            self._sweep.collect(busy_ids)

    def _publish(self, dump: Dump) -> None:
        block_id, shard = dump.key
        try:
            self._disk.rename(dump.path, self._path(block_id, shard))
        except FileNotFoundError as error:
            self._forget(dump)
            raise BlockNotFound(f"{dump.path} is gone: reclaimed or removed by somebody", 2) from error
        except OSError as error:
            raise DiskFailed.of(error, f"rename of {dump.path}") from error
        self._forget(dump)

    def _anchor(self, block_id: bytes) -> None:
        """Make the block's names durable, where that is asked for."""
        if self._config.durability != "fsync":
            return
        folder = self._names[zlib.crc32(block_id) % FOLDERS]
        try:
            if folder not in self._anchored:
                self._disk.fsync_dir(self._data)
                self._anchored.add(folder)
            self._disk.fsync_dir(folder)
        except OSError as error:
            raise DiskFailed.of(
                error, f"fsync of folder {folder}; the block may not outlive a crash"
            ) from error

    def visible(self, block_id: bytes) -> bool:
        """Whether every shard has its committed file."""
        begin = self._names[zlib.crc32(block_id) % FOLDERS] + block_id.hex()
        exists = self._disk.exists
        try:
            for end in self._ends:  # no generator: lookups of thousands of ids come here
                if not exists(begin + end + ".kv"):
                    return False
        except NotADirectoryError:
            return False
        except OSError as error:
            raise DiskFailed.of(error, f"lookup of {begin}") from error
        return True

    def _readable(self, block_id: bytes, shard: int) -> list[str]:
        """The paths to try in turn: own dump first; the committed file only when all shards are there."""
        with self._lock:
            dump = self._dumps.get(block_id, {}).get(shard)
            own = dump.path if dump is not None and dump.state in ("ready", "committing") else ""
        if own:
            return [own, self._path(block_id, shard)]
        if self._config.shards > 1 and not self.visible(block_id):
            raise BlockNotFound("not all shards of the block are committed", 2)
        return [self._path(block_id, shard)]

    def read(self, block_id: bytes, shard: int, piece: Piece) -> None:
        """Fill `piece`; on an error its contents are undefined and the error is reported."""
        key = (block_id, shard)
        with self._lock:
            self._reading[key] = self._reading.get(key, 0) + 1
        try:
            into = piece.incoming()
            for path in self._readable(block_id, shard):
                try:
                    self._files.read(path, key, into, piece.dtype, piece.address)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    raise DiskFailed.of(error, f"load from {path}") from error
                piece.landed()
                self._sweep.touch(path)
                return
            raise BlockNotFound("no such block", 2)
        finally:
            with self._lock:
                self._reading[key] -= 1
                if not self._reading[key]:
                    del self._reading[key]

    def describe(self, block_id: bytes, shard: int) -> tuple[int, str]:
        """Length and dtype from the file's header."""
        for path in self._readable(block_id, shard):
            try:
                header = self._files.header(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise DiskFailed.of(error, f"header of {path}") from error
            return header.length, header.dtype
        raise BlockNotFound("no such block", 2)

    def touch(self, block_id: bytes, shard: int) -> None:
        """Used further up: not among the first to be collected."""
        self._sweep.touch(self._path(block_id, shard))

    def prefetch(self, block_id: bytes, shard: int) -> None:
        """Nothing is nearer than the file."""

    def close(self) -> None:
        """Remove every temporary file of this store."""
        with self._lock:
            ids = list(self._dumps)
        for block_id in ids:
            self.drop(block_id)


class UcmPosixStore(BlockStore):
    """The Posix stage alone."""

    pipeline = "Posix"

    def _build(self, disk: Disk) -> Stage:
        return PosixStage(self.config, disk, self._clock)
