"""Stand-in for the pipeline connector with its Posix stage, as the facts describe it: a plain rename when
the last shard is written, no checksum, a lookup that stops at the first miss, tasks that fail as -1."""

import contextlib
import os

from ucm.store.ucmstore_v1 import Task, UcmKVStoreBaseV1


class Done(Task):
    def __init__(self, code):
        self.code = code


class UcmPipelineStore(UcmKVStoreBaseV1):
    def __init__(self, config):
        super().__init__(config)
        for value in config.values():
            if not isinstance(value, bool | int | float | str | list):
                raise RuntimeError("bad any_cast")
        sizes = [config[key] for key in ("tensor_size", "shard_size", "block_size")]
        if config["store_pipeline"] != "Posix" or config["device_id"] < 0 or sizes != sorted(sizes):
            raise RuntimeError("-50000")
        self.size = config["block_size"]
        (self.folder,) = config["storage_backends"]
        self.waited = set()

    def cc_store(self):
        return id(self)

    def path(self, block_id):
        assert type(block_id) is bytes
        assert len(block_id) == 16
        name = block_id.hex()
        return os.path.join(self.folder, name[:3], name)

    def lookup(self, block_ids):
        hits = [os.path.exists(self.path(one)) for one in block_ids]
        last = self.prefix(hits)
        return [index <= last for index in range(len(hits))]

    def lookup_on_prefix(self, block_ids):
        return self.prefix([os.path.exists(self.path(one)) for one in block_ids])

    def prefix(self, hits):
        return (hits.index(False) if False in hits else len(hits)) - 1

    def prefetch(self, block_ids):
        pass

    def dump(self, block_ids, shard_index, src_tensor):
        return self.task(self.write, block_ids, shard_index, src_tensor)

    def load(self, block_ids, shard_index, dst_tensor):
        return self.task(self.read, block_ids, shard_index, dst_tensor)

    def task(self, move, block_ids, shard_index, tensors):
        code = 0
        for block_id, shard, row in zip(block_ids, shard_index, tensors, strict=True):
            assert shard == 0
            assert len(row) == 1
            try:
                move(self.path(block_id), memoryview(row[0].numpy()))
            except OSError:
                code = -1
        return Done(code)

    def write(self, path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(f"{path}.tmp", os.O_CREAT | os.O_RDWR)
        try:
            if os.pwrite(fd, data, 0) < len(data):
                raise OSError("short write")
        finally:
            os.close(fd)
        with contextlib.suppress(OSError):  # the result of its commit is ignored
            os.rename(f"{path}.tmp", path)

    def read(self, path, data):
        with open(path, "rb") as file:
            if file.readinto(data) < len(data):
                raise OSError("short read")

    def wait(self, task):
        if task in self.waited:
            raise RuntimeError("-50005")
        self.waited.add(task)
        if task.code:
            raise RuntimeError(str(task.code))

    def check(self, task):
        return True
