"""Stores that keep, or break, what they promise of power cuts, shortages and restarts."""

import importlib.util
import os
from pathlib import Path
from typing import ClassVar

spec = importlib.util.spec_from_file_location(
    "file_stores_promised", Path(__file__).with_name("file_stores.py")
)
file_stores = importlib.util.module_from_spec(spec)
spec.loader.exec_module(file_stores)


class Unsynced(file_stores.Right):
    """Digest and rename, and no fsync."""

    survives_power_cut = "whole"


class BoldUnsynced(Unsynced):
    survives_power_cut = "kept"


class Synced(Unsynced):
    """The file's fsync, then its folder's; what failed is removed."""

    survives_power_cut = "kept"

    def put(self, block_id, source):
        aside = f"{self.path(block_id)}.{os.getpid()}"
        try:
            with open(aside, "wb") as file:
                file.write(self.file(block_id, source.numpy().tobytes()))
                file.flush()
                os.fsync(file.fileno())
            os.rename(aside, self.path(block_id))
        except OSError:
            if os.path.exists(aside):
                os.unlink(aside)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class BoldEmbedded(file_stores.Embedded):
    """Promises what its durability does not."""

    config: ClassVar[dict[str, str]] = {"store_pipeline": "Posix", "durability": "none"}


class Torn(file_stores.Unverified):
    """Nothing is compared, so that a file without its data is a hit."""

    survives_power_cut = "whole"

    def put(self, block_id, source):
        with open(self.path(block_id), "wb") as file:
            file.write(self.file(block_id, source.numpy().tobytes()))


class CannotOpenAgain(Unsynced):
    """A lock file that is left behind keeps everybody out."""

    def open(self, folder):
        super().open(folder)
        fd = os.open(os.path.join(folder, "lock"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.fsync(fd)
        os.close(fd)

    def close(self):
        os.unlink(os.path.join(self.folder, "lock"))


class KeepsWhatFailed(file_stores.Unverified):
    """A file that could not be written whole stays under its name."""

    def put(self, block_id, source):
        with open(self.path(block_id), "wb") as file:
            file.write(self.file(block_id, source.numpy().tobytes()))


class NeverAgain(Synced):
    """A put that fails is remembered as being under way, and skipped from then on."""

    def open(self, folder):
        super().open(folder)
        self.busy = set()

    def put(self, block_id, source):
        if block_id not in self.busy:
            self.busy.add(block_id)
            super().put(block_id, source)
            self.busy.discard(block_id)


class SaysNothing(file_stores.Unverified):
    """A short write is taken for a whole one."""

    def put(self, block_id, source):
        fd = os.open(self.path(block_id), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(fd, self.file(block_id, source.numpy().tobytes()))
        os.close(fd)


class Slips(file_stores.Right):
    """A block whose file is gone is a KeyError."""

    def get(self, block_id, target):
        if not super().get(block_id, target):
            raise KeyError(block_id.hex())
        return True

    def load(self, block_ids, targets):
        return [self.get(one, target) for one, target in zip(block_ids, targets, strict=True)]


class InMemory(file_stores.IndexInMemory):
    survives_restart = False
    survives_kill = False
