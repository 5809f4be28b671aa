"""Small stores of files: a right one, and beside it one for each way of being wrong."""

import hashlib
import os
import signal
import time
from typing import ClassVar

import torch

from scenarios.store.adapters import Adapter, black_box
from scenarios.store.adapters.embedded import Embedded


class Right(Adapter):
    """Length, id and digest in front; a private name until all is there."""

    def open(self, folder):
        self.folder = folder

    def path(self, block_id):
        return os.path.join(self.folder, block_id.hex())

    def file(self, block_id, data):
        head = block_id + len(data).to_bytes(8, "little")
        return head + hashlib.blake2b(head + data, digest_size=16).digest() + data

    def put(self, block_id, source):
        aside = f"{self.path(block_id)}.{os.getpid()}"
        with open(aside, "wb") as file:
            file.write(self.file(block_id, source.numpy().tobytes()))
        os.rename(aside, self.path(block_id))

    def get(self, block_id, target):
        try:
            with open(self.path(block_id), "rb") as file:
                found = file.read()
        except FileNotFoundError:
            return False
        data = found[40:]
        if found != self.file(block_id, data) or len(data) != target.numel():
            return False
        target.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        return True

    def has(self, block_id):
        return os.path.exists(self.path(block_id))


class IndexInMemory(Right):
    """The store forgets at the end of its process what it has."""

    def open(self, folder):
        super().open(folder)
        self.index = set()

    def put(self, block_id, source):
        super().put(block_id, source)
        self.index.add(block_id)

    def get(self, block_id, target):
        return block_id in self.index and super().get(block_id, target)

    def has(self, block_id):
        return block_id in self.index


class WrittenAtClose(Right):
    """Blocks reach their files when the store is closed."""

    def open(self, folder):
        super().open(folder)
        self.pending = {}

    def put(self, block_id, source):
        self.pending[block_id] = source.clone()

    def get(self, block_id, target):
        if block_id in self.pending:
            target.copy_(self.pending[block_id])
            return True
        return super().get(block_id, target)

    def has(self, block_id):
        return block_id in self.pending or super().has(block_id)

    def close(self):
        for block_id, source in self.pending.items():
            super().put(block_id, source)


class Unverified(Right):
    """What is in the file is not compared with what should be there; the length is not either."""

    def get(self, block_id, target):
        if not self.has(block_id):
            return False
        with open(self.path(block_id), "rb") as file:
            file.seek(40)
            file.readinto(target.numpy())
        return True


class DigestOfDataOnly(Right):
    """The digest says nothing of the id, so another block's file is as good."""

    def file(self, block_id, data):
        return super().file(bytes(16), data)


class Rounded(Right):
    """Addresses are rounded down to 512 bytes, as a wrong use of direct I/O does."""

    def put(self, block_id, source):
        shift = source.data_ptr() % 512
        moved = torch.cat([torch.zeros(shift, dtype=torch.uint8), source])[: source.numel()]
        super().put(block_id, moved)


class TornInPlace(Unverified):
    """Blocks are written in place, a piece at a time."""

    def put(self, block_id, source):
        with open(self.path(block_id), "wb", buffering=0) as file:
            data = self.file(block_id, source.numpy().tobytes())
            for at in range(0, len(data), 64):
                file.write(data[at : at + 64])
                time.sleep(0.0002)


class WholeSectors(Right):
    """The last bytes of a block that are no whole sector are left out."""

    def get(self, block_id, target):
        whole = torch.empty_like(target)
        if not super().get(block_id, whole):
            return False
        end = target.numel() // 512 * 512
        target[:end] = whole[:end]
        return True


class OneTemporaryName(Right):
    """Two processes that write the same block use the same temporary name."""

    def put(self, block_id, source):
        aside = f"{self.path(block_id)}.tmp"
        with open(aside, "wb") as file:
            file.write(self.file(block_id, source.numpy().tobytes()))
        time.sleep(0.05)
        os.rename(aside, self.path(block_id))


class ShortKeys(Right):
    """Only the beginning of the id is looked at."""

    def path(self, block_id):
        return os.path.join(self.folder, block_id.hex()[:0] or "block")

    def get(self, block_id, target):
        return Unverified.get(self, block_id, target)


class MissRaises(Right):
    """A batch stops at the first miss and says that it is all a miss."""

    def load(self, block_ids, targets):
        statuses = super().load(block_ids, targets)
        return statuses if all(statuses) else [False] * len(statuses)


class LookupStops(Right):
    """Lookups answer False behind the first miss."""

    def lookup(self, block_ids):
        found = super().lookup(block_ids)
        cut = found.index(False) if False in found else len(found)
        return [index < cut for index in range(len(found))]


class EmptyRefused(Right):
    """An empty list is an error."""

    def lookup(self, block_ids):
        return [self.has(block_id) for block_id in [block_ids[0], *block_ids[1:]]]


class SecondDumpFails(Right):
    """A block that is there cannot be dumped again, with the same bytes neither."""

    def get(self, block_id, target):
        return super().get(block_id, target) and not os.path.exists(self.path(block_id) + ".twice")

    def put(self, block_id, source):
        if self.has(block_id):
            open(self.path(block_id) + ".twice", "w").close()
        super().put(block_id, source)


class CommitIgnored(Right):
    """Dumped blocks are visible at once, although the store has a commit."""

    commits = True


class Committing(Right):
    """A store with a commit, as it should be."""

    commits = True

    def dump(self, block_ids, sources):
        self.waiting = dict(zip(block_ids, [source.clone() for source in sources], strict=True))

    def commit(self, block_ids):
        for block_id in block_ids:
            self.put(block_id, self.waiting[block_id])


class Hangs(Right):
    """A load waits for ever."""

    deadline = 0.5

    def get(self, block_id, target):
        while self.has(block_id):
            time.sleep(0.01)
        return False


class Crashes(Right):
    """A load kills the process."""

    def get(self, block_id, target):
        if self.has(block_id):
            os.kill(os.getpid(), signal.SIGKILL)
        return False


class Fails(Right):
    """A load of what is there raises."""

    def get(self, block_id, target):
        if self.has(block_id):
            raise OSError(5, "Input/output error")
        return False


class SaysNothing(Right):
    """The answer is None."""

    def get(self, block_id, target):
        super().get(block_id, target)


class CannotBeMade(Right):
    """The constructor wants something."""

    def __init__(self, size):
        self.size = size


class OpenFails(Right):
    def open(self, folder):
        raise PermissionError(13, "Permission denied")


class EmbeddedDirect(Embedded):
    """The embedded store without its cache, with direct I/O."""

    config: ClassVar = {"store_pipeline": "Posix", "io_direct": True, "durability": "none"}


right = black_box(Right)
