"""What happens to the storage folder besides blocks: its check at creation, residue, capacity.

`prepare` makes every reason why the folder cannot be used an error at creation. `Sweep` removes old
temporary files, and by capacity the blocks not loaded for longest, all shards of a block together.
A block being read in this process is spared; a reader in another one keeps its open file.
"""

from __future__ import annotations

import errno
import os

from systems.store.config import StoreConfig
from systems.store.errors import FULL, StorageUnusable
from systems.store.log import POSIX
from systems.store.piece import page_aligned, view_of
from systems.store.ports import Clock, Disk
from systems.store.real import Lock

LOW_WATER = 0.9  # of the capacity: collected down to it, so that not every commit collects


def prepare(config: StoreConfig, disk: Disk, data: str, writer: str) -> None:
    """Make the folders and write a probe, or StorageUnusable that says what is wrong."""
    path = config.storage_path
    try:
        if disk.exists(path) and not disk.stat(path).is_dir:
            raise StorageUnusable(f"storage_path: {path} is a file; allowed a folder", errno.ENOTDIR)
        disk.makedirs(data)
        if config.durability == "fsync":
            disk.fsync_dir(os.path.dirname(path.rstrip("/")) or "/")
            disk.fsync_dir(path)
        if disk.free_bytes(path) < 1:
            raise StorageUnusable(f"storage_path: {path} has no space left", errno.ENOSPC)
        _probe(config, disk, f"{data}/probe.{writer}")
    except StorageUnusable:
        raise
    except OSError as error:
        number = error.errno or errno.EIO
        raise StorageUnusable(f"storage_path: {path} {_reason(number, config)}", number) from error


def _reason(number: int, config: StoreConfig) -> str:
    told = f"({errno.errorcode.get(number, number)}: {os.strerror(number)})"
    if number == errno.EINVAL and config.io_direct:
        return (
            f"is on a file system that takes no direct I/O of alignment {config.alignment};"
            f" allowed io_direct False, or alignment 4096 {told}"
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"is not writable {told}"
    if number in (errno.ENOTDIR, errno.EEXIST):
        return f"is a file, or has one above it; allowed a folder {told}"
    return f"has no space left {told}" if number in FULL else f"cannot be used {told}"


def _probe(config: StoreConfig, disk: Disk, begin: str) -> None:
    direct = os.O_DIRECT if config.io_direct else 0
    unit = config.alignment
    buffer = page_aligned(2 * unit)
    for number in range(1000):
        path = f"{begin}-{number}.tmp"
        try:
            fd = disk.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | direct)
            break
        except FileExistsError:
            continue
    else:
        raise FileExistsError(errno.EEXIST, "no free name for a probe")
    try:
        try:
            # At an odd multiple of the alignment: a disk that asks for more says so now.
            written = disk.pwrite(fd, view_of(buffer)[unit : 2 * unit], unit)
            if written < 1:
                raise OSError(errno.ENOSPC, "nothing written")
        finally:
            disk.close(fd)
    finally:
        try:
            disk.unlink(path)
        except OSError as error:
            POSIX.warning("probe %s stays for now: %s", path, error)


class Sweep:
    """Keeps the folder in bounds."""

    def __init__(self, disk: Disk, clock: Clock, data: str, config: StoreConfig) -> None:
        self._disk = disk
        self._clock = clock
        self._data = data
        self._limit = config.capacity_bytes
        self._old = config.residue_seconds
        self._total = 0
        self._collecting = False
        self._lock = Lock()

    def start(self) -> None:
        """Reclaim residue; learn how much is there. What fails is told and left."""
        now = self._clock.time()
        for folder in ("", *self._listed("")):
            for name in self._listed(folder):
                if not name.endswith((".tmp", ".kv")):
                    continue
                path = self._join(folder, name)
                try:
                    if name.endswith(".kv"):
                        self._total += self._disk.stat(path).size if self._limit else 0
                    elif now - self._disk.stat(path).mtime > self._old:
                        self._disk.unlink(path)
                        POSIX.info("reclaimed %s", path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    POSIX.warning("%s stays for now: %s", path, error)

    def touch(self, path: str) -> None:
        """The block was loaded: it is the last to be collected."""
        if self._limit:
            try:
                self._disk.utime(path, self._clock.time())
            except OSError as error:
                POSIX.debug("times of %s stay: %s", path, error)

    def over(self, added: int) -> bool:
        """Count what was committed; whether it is time to collect."""
        with self._lock:
            self._total += added
            return 0 < self._limit < self._total

    def collect(self, spared: set[bytes]) -> None:
        """Remove the blocks loaded least recently until the low-water mark."""
        with self._lock:
            if self._collecting:
                return
            self._collecting = True
        try:
            self._collect({block_id.hex() for block_id in spared})
        finally:
            self._collecting = False

    def _collect(self, spared: set[str]) -> None:
        blocks: dict[str, list[tuple[str, int]]] = {}
        used: dict[str, float] = {}
        for folder in self._listed(""):
            for name in self._listed(folder):
                if name.endswith(".kv"):
                    path, block = self._join(folder, name), name.partition(".")[0]
                    try:
                        found = self._disk.stat(path)
                    except OSError:
                        continue
                    blocks.setdefault(block, []).append((path, found.size))
                    used[block] = max(used.get(block, 0.0), found.mtime)
        total = sum(size for files in blocks.values() for _, size in files)
        for block in sorted(blocks, key=lambda one: (used[one], one)):
            if total <= self._limit * LOW_WATER:
                break
            if block in spared:
                continue
            for path, size in blocks[block]:
                try:
                    self._disk.unlink(path)
                except FileNotFoundError:
                    pass
                except OSError as error:
                    POSIX.warning("%s cannot be collected: %s", path, error)
                    continue
                total -= size
            POSIX.info("collected block %s", block)
        with self._lock:
            self._total = total

    def _join(self, folder: str, name: str) -> str:
        return f"{self._data}/{folder}/{name}" if folder else f"{self._data}/{name}"

    def _listed(self, folder: str) -> list[str]:
        try:
            names = self._disk.listdir(f"{self._data}/{folder}" if folder else self._data)
        except (NotADirectoryError, FileNotFoundError):
            return []
        except OSError as error:
            POSIX.warning("%s/%s cannot be listed: %s", self._data, folder, error)
            return []
        return sorted(names)
