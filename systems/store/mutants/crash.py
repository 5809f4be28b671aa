"""Mutants that a crash shows: what must be durable is not, or not in its order."""

from __future__ import annotations

import errno
import os

from harness import mutant
from systems.store.blockfile import Files
from systems.store.capacity import Sweep, prepare
from systems.store.config import StoreConfig
from systems.store.errors import BlockNotFound, StorageUnusable
from systems.store.header import HEADER_BYTES, Header
from systems.store.ports import Disk
from systems.store.posix import PosixStage
from systems.store.stage import Dump


@mutant(
    of=Files._make_durable, expects="durable/rename_before_fsync|store/torn_block", ranks=1
)
def file_not_synced(self: Files, fd: int) -> None:
    """The fsync of a block's file is left out: the name may outlive the data.

    Finding: durable/rename_before_fsync|store/torn_block. Smallest world: 1.
    """


@mutant(of=PosixStage._anchor, expects="durable/folder_not_synced|store/lost_block", ranks=1)
def folder_not_synced(self: PosixStage, block_id: bytes) -> None:
    """The fsync of the block's folder is left out at commit.

    Finding: durable/folder_not_synced|store/lost_block. Smallest world: 1.
    """
    folder = self._folder(block_id)
    if folder not in self._anchored:
        self._disk.fsync_dir(self._data)
        self._anchored.add(folder)


@mutant(of=PosixStage._anchor, expects="durable/parent_not_synced|store/lost_block", ranks=1)
def parent_not_synced(self: PosixStage, block_id: bytes) -> None:
    """A new folder's own name is not made durable.

    Finding: durable/parent_not_synced|store/lost_block. Smallest world: 1.
    """
    self._disk.fsync_dir(self._folder(block_id))


@mutant(of=prepare, expects="durable/parent_not_synced|store/lost_block", ranks=1)
def storage_path_not_synced(config: StoreConfig, disk: Disk, data: str, writer: str) -> None:
    """The names of the storage folder and of its data folder are not made durable when they are made.

    Finding: durable/parent_not_synced|store/lost_block. Smallest world: 1.
    """
    try:
        disk.makedirs(data)
    except OSError as error:
        number = error.errno or errno.EIO
        raise StorageUnusable(f"storage_path: {config.storage_path} {number}", number) from error


@mutant(of=Files.create, expects="durable/rename_before_fsync|store/torn_block", ranks=1)
def synced_before_written(
    self: Files, path: str, header: Header, data: memoryview, address: int, *, sync: bool
) -> None:
    """The fsync comes before the block's data is written.

    Finding: durable/rename_before_fsync|store/torn_block. Smallest world: 1.
    """
    fd = self._disk.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | self._direct)
    try:
        self._write_header(fd, header)
        if sync:
            self._make_durable(fd)
        self._move(fd, data, address, write=True)
    finally:
        self._disk.close(fd)


@mutant(of=PosixStage.commit, expects="durable/folder_not_synced|store/lost_block", ranks=1)
def folder_synced_before_rename(self: PosixStage, block_id: bytes) -> None:
    """The folder is made durable before the rename instead of after it.

    Finding: durable/folder_not_synced|store/lost_block. Smallest world: 1.
    """
    dumps = self._dumps.claim(block_id)
    try:
        if not dumps and not self._committed_before(block_id):
            raise BlockNotFound("nothing to commit")
        if self._config.durability == "fsync":
            self._anchor(block_id)
        for dump in dumps:
            self._publish(dump)
    finally:
        self._dumps.release(dumps)


@mutant(of=PosixStage.commit, expects="store/lost_block", ranks=1)
def acknowledged_before_rename(self: PosixStage, block_id: bytes) -> None:
    """A commit is acknowledged at once and its rename is done with the next commit.

    Finding: store/lost_block. Smallest world: 1.
    """
    late: list[bytes] = self.__dict__.setdefault("_late", [])
    for one in late:
        for dump in self._dumps.claim(one):
            self._publish(dump)
        self._anchor(one)
    late[:] = [block_id]


@mutant(of=PosixStage._publish, expects="durable/written_after_rename|store/torn_block", ranks=1)
def header_after_rename(self: PosixStage, dump: Dump) -> None:
    """The header is written when the file has its final name; until then the page is empty.

    Finding: durable/written_after_rename|store/torn_block. Smallest world: 1.
    """
    header = self._files.header(dump.path)
    fd = self._disk.open(dump.path, os.O_WRONLY)
    self._disk.pwrite(fd, memoryview(bytes(HEADER_BYTES)), 0)
    self._disk.fsync(fd)
    self._disk.close(fd)
    self._disk.rename(dump.path, self._path(*dump.key))
    fd = self._disk.open(self._path(*dump.key), os.O_WRONLY)
    self._files._write_header(fd, header)
    self._disk.close(fd)
    self._dumps.committed(dump, whole=self._config.shards == 1)


@mutant(of=PosixStage._publish, expects="durable/written_after_rename", ranks=1)
def header_written_again(self: PosixStage, dump: Dump) -> None:
    """The header is written once more, the same, under the final name: harmless until a byte differs.

    Finding: durable/written_after_rename. Smallest world: 1.
    """
    header = self._files.header(dump.path)
    self._disk.rename(dump.path, self._path(*dump.key))
    fd = self._disk.open(self._path(*dump.key), os.O_WRONLY)
    self._files._write_header(fd, header)
    self._disk.close(fd)
    self._dumps.committed(dump, whole=self._config.shards == 1)


@mutant(of=PosixStage._publish, expects="durable/removed_before_rename|store/lost_block", ranks=1)
def removed_before_rename(self: PosixStage, dump: Dump) -> None:
    """The committed file of an earlier dump is removed before the new one gets its name.

    Finding: durable/removed_before_rename|store/lost_block. Smallest world: 1.
    """
    path = self._path(*dump.key)
    if self._disk.exists(path):
        self._disk.unlink(path)
        self._disk.fsync_dir(self._folder(dump.key[0]))
    self._disk.rename(dump.path, path)
    self._dumps.committed(dump, whole=self._config.shards == 1)


@mutant(of=Sweep.start, expects="store/uncommitted_visible|store/torn_block", ranks=1)
def residue_adopted(self: Sweep) -> None:
    """At its start the store takes old temporary files of blocks for commits that were interrupted.

    Finding: store/uncommitted_visible|store/torn_block. Smallest world: 1.
    """
    for folder in ("", *self._listed("")):
        for name in self._listed(folder):
            path = self._join(folder, name)
            if name.endswith(".tmp") and name.count(".") > 2:
                block, shard, *_ = name.split(".")
                self._disk.rename(path, self._join(folder, f"{block}.{shard}.kv"))
            elif name.endswith(".tmp"):
                self._disk.unlink(path)


@mutant(of=Sweep.start, expects="store/residue", ranks=1)
def residue_kept(self: Sweep) -> None:
    """Temporary files of a store that is gone are never reclaimed.

    Finding: store/residue. Smallest world: 1.
    """
