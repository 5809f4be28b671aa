"""The Posix stage: one file for each (block id, shard), whole or absent.

A dump writes `<hex id>.<shard>of<shards>.<writer>-<n>.tmp`, a name nobody else writes; commit renames
it to `<hex id>.<shard>of<shards>.kv`. The name is the commit marker: readers look at nothing else, so
visibility survives a restart and needs no lock between processes. Folders are named by a stable hash
of the id. Durability: `none` asks nothing of the disk; `flush` makes a file's data durable before it can
be committed, so that power loss may lose a block and never tear one; `fsync` makes the names durable too.
A commit whose folder cannot be made durable is an error although the block is there for all to see: it is
whole, and may be lost with the power. Committing again asks the disk again.
Not modelled: a folder that another machine's clock makes look old (residue is judged by file times).
"""

from __future__ import annotations

import os
import zlib

from systems.store import capacity
from systems.store.blockfile import Files
from systems.store.capacity import Sweep
from systems.store.config import StoreConfig
from systems.store.dumps import Dumps
from systems.store.errors import BlockNotFound, DiskFailed, DiskFull, DumpDropped
from systems.store.front import BlockStore
from systems.store.header import HEADER_BYTES, Header, checksum
from systems.store.log import POSIX
from systems.store.piece import Piece
from systems.store.ports import Clock, Disk
from systems.store.real import Lock
from systems.store.stage import Dump, Key, Stage

FOLDERS = 256
ENDS = [f"/{number:02x}/" for number in range(FOLDERS)]
NAMES_TRIED = 1000


class PosixStage:
    """Blocks as files under `storage_path`/data."""

    name = "Posix"

    def __init__(self, config: StoreConfig, disk: Disk, clock: Clock) -> None:
        self._config = config
        self._disk = disk
        self._lock = Lock()
        self._dumps = Dumps()
        self._reading: dict[Key, int] = {}
        self._anchored: set[str] = set()  # folders whose own names are known to be durable
        self._stuck: set[str] = set()  # temporary files that could not be removed
        self._writer = config.writer or f"{os.uname().nodename.replace('.', '-')}-{os.getpid()}"
        self._written = 0
        self._data = os.path.join(config.storage_path, "data")
        self._names = [self._data + end for end in ENDS]
        self._ends = [f".{shard}of{config.shards}" for shard in range(config.shards)]
        capacity.prepare(config, disk, self._data, self._writer)
        self._files = Files(disk, config.alignment, direct=config.io_direct)
        self._sweep = Sweep(disk, clock, self._data, config)
        self._sweep.start()
        POSIX.info("storage path %s", config.storage_path)

    def _folder(self, block_id: bytes) -> str:
        """The block's folder, with a slash behind it."""
        return self._names[zlib.crc32(block_id) % FOLDERS]

    def _path(self, block_id: bytes, shard: int) -> str:
        """The name that makes a shard visible."""
        return f"{self._folder(block_id)}{block_id.hex()}{self._ends[shard]}.kv"

    def _temporary(self, block_id: bytes, shard: int) -> str:
        """A name that no other writer, and no other dump of this one, uses."""
        with self._lock:
            self._written += 1
            number = self._written
        begin = f"{self._folder(block_id)}{block_id.hex()}{self._ends[shard]}"
        return f"{begin}.{self._writer}-{number}.tmp"

    def begin(self, block_id: bytes, shard: int) -> Dump:
        """Announce a dump; an earlier one of the same shard that was not committed is replaced."""
        return self._dumps.announce(block_id, shard)

    def write(self, dump: Dump, piece: Piece) -> None:
        """Write the temporary file; on any error nothing of it can be seen."""
        if dump.residue:
            self._remove(dump.residue)
        try:
            self._dumps.require_running(dump)
            self._require_room(piece.length)
            self._write(dump, piece)
        except BaseException:
            self._dumps.failed(dump)
            raise
        try:
            self._dumps.succeeded(dump)
        except DumpDropped:
            self._remove(dump.path)
            raise

    def _require_room(self, length: int) -> None:
        limit = self._config.capacity_bytes
        if limit and length > limit:
            raise DiskFull(f"a block of {length} bytes in a store of capacity_bytes {limit}")

    def _write(self, dump: Dump, piece: Piece) -> None:
        block_id, shard = dump.key
        data = piece.outgoing()
        header = Header(block_id, shard, self._config.shards, piece.length, piece.dtype, checksum(data))
        made = False
        for _ in range(NAMES_TRIED):
            dump.path = self._temporary(block_id, shard)
            try:
                self._files.create(dump.path, header, data, piece.address, sync=self._flushes())
            except FileExistsError:
                continue  # a namesake in another container, or before a restart
            except FileNotFoundError as error:
                if made:
                    raise DiskFailed.of(error, f"dump to {dump.path}") from error
                self._make(self._folder(block_id))
                made = True
                continue
            except OSError as error:
                self._remove(dump.path)
                raise DiskFailed.of(error, f"dump to {dump.path}") from error
            except Exception:  # not when a worker is torn down: a dead process cleans up nothing
                self._remove(dump.path)
                raise
            dump.length = HEADER_BYTES + piece.length
            return
        raise DiskFailed(f"dump to {self._folder(block_id)}: no free temporary name in {NAMES_TRIED}", 17)

    def _flushes(self) -> bool:
        """Whether a file's data is made durable before it can be committed."""
        return self._config.durability != "none"

    def _make(self, folder: str) -> None:
        self._anchored.discard(folder)
        try:
            self._disk.makedirs(folder)
        except OSError as error:
            raise DiskFailed.of(error, f"folder {folder}") from error

    def _remove(self, path: str) -> None:
        """Remove a temporary file; one that cannot be removed now is tried again at close."""
        try:
            self._disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._stuck.add(path)
            POSIX.warning("temporary file %s stays for now: %s", path, error)

    def abandon(self, dump: Dump) -> None:
        """Forget one dump; one that is running removes its own file when done."""
        for path in self._dumps.take_back(dump):
            self._remove(path)

    def drop(self, block_id: bytes) -> None:
        """Forget all that was dumped of a block and not committed."""
        for dump in self._dumps.of(block_id):
            self.abandon(dump)

    def commit(self, block_id: bytes) -> None:
        """Rename each dumped shard. Failing half-way is harmless: call again, or drop the rest."""
        dumps = self._dumps.claim(block_id)
        try:
            for dump in dumps:
                self._publish(dump)
            if not dumps and not self._committed_before(block_id):
                raise BlockNotFound("nothing to commit: not dumped here, or its dump failed, or dropped")
            if self._config.durability == "fsync":
                self._anchor(block_id)
        finally:
            self._dumps.release(dumps)
        if self._sweep.over(sum(dump.length for dump in dumps)):
            self._sweep.collect(self._spared(block_id))

    def _committed_before(self, block_id: bytes) -> bool:
        """Whether a commit of nothing repeats an earlier one: the block is there, or a shard of ours."""
        shards = range(self._config.shards)
        return any(self._dumps.may_load(block_id, shard) for shard in shards) or self.visible(block_id)

    def _spared(self, block_id: bytes) -> set[bytes]:
        """Blocks that must not be collected now: those being read, and the one just committed."""
        with self._lock:
            return {key[0] for key in self._reading} | {block_id}

    def _publish(self, dump: Dump) -> None:
        """Give a complete file its final name, at once."""
        try:
            self._disk.rename(dump.path, self._path(*dump.key))
        except FileNotFoundError as error:
            self._dumps.failed(dump)
            raise BlockNotFound(f"{dump.path} is gone: reclaimed or removed by somebody", 2) from error
        except OSError as error:
            if dump.state == "gone":  # dumped again meanwhile: nobody else would remove it
                self._remove(dump.path)
            raise DiskFailed.of(error, f"rename of {dump.path}") from error
        self._dumps.committed(dump, whole=self._config.shards == 1)

    def _anchor(self, block_id: bytes) -> None:
        """Make the block's names durable."""
        folder = self._folder(block_id)
        try:
            if folder not in self._anchored:
                self._disk.fsync_dir(self._data)
                self._anchored.add(folder)
            self._disk.fsync_dir(folder)
        except OSError as error:
            raise DiskFailed.of(
                error, f"fsync of folder {folder}: committed, but may not outlive a crash; commit again"
            ) from error

    def visible(self, block_id: bytes) -> bool:
        """Whether every shard has its committed file."""
        begin = self._folder(block_id) + block_id.hex()
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

    def permit(self, block_id: bytes, shard: int) -> None:
        """The block is whole, or the shard was committed here; BlockNotFound otherwise."""
        if self.visible(block_id):
            self._dumps.seen_whole(block_id, shard)
        elif not self._dumps.may_load(block_id, shard):
            raise BlockNotFound("no such block, or not all its shards are committed", 2)

    def mine(self, block_id: bytes, shard: int) -> bool:
        """Whether a load would read what only this store may see."""
        return bool(self._dumps.own(block_id, shard))

    def _readable(self, block_id: bytes, shard: int) -> list[str]:
        """The paths to try in turn: own dump first; the committed file only when all shards are there."""
        own = self._dumps.own(block_id, shard)
        if own:
            return [own, self._path(block_id, shard)]
        if self._config.shards > 1:  # one file is its own answer
            self.permit(block_id, shard)
        return [self._path(block_id, shard)]

    def read(self, block_id: bytes, shard: int, piece: Piece) -> None:
        """Fill `piece`; on an error its contents are undefined and the error is reported."""
        key = (block_id, shard)
        self._reads(key)
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
            self._has_read(key)

    def _reads(self, key: Key) -> None:
        """From now on the block is not collected."""
        with self._lock:
            self._reading[key] = self._reading.get(key, 0) + 1

    def _has_read(self, key: Key) -> None:
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
        for block_id in self._dumps.ids():
            self.drop(block_id)
        for path in sorted(self._stuck):
            self._stuck.discard(path)
            self._remove(path)


class UcmPosixStore(BlockStore):
    """The Posix stage alone."""

    pipeline = "Posix"

    def _build(self, disk: Disk) -> Stage:
        return PosixStage(self.config, disk, self._clock)
