"""Stand-in for the Nfs store, as the facts describe it: `.act` files that commit renames to `.dat`."""

import os

from ucm.store.ucmstore import Task, UcmKVStoreBase

DUPLICATE, NOT_FOUND = -50003, -50005


class Done(Task):
    def __init__(self, code):
        self.code = code


class UcmNfsStore(UcmKVStoreBase):
    def __init__(self, config):
        super().__init__(config)
        assert config["role"] == "worker"
        self.size = config["kv_block_size"]
        self.folder = os.path.join(config["storage_backends"], "data")
        os.makedirs(self.folder, exist_ok=True)

    def cc_store(self):
        return id(self)

    def path(self, block_id, end):
        assert type(block_id) is str
        folder = os.path.join(self.folder, block_id[:16])
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, block_id[16:] + end)

    def create(self, block_ids):
        return [self.create_one(block_id) for block_id in block_ids]

    def create_one(self, block_id):
        if os.path.exists(self.path(block_id, ".dat")):
            return DUPLICATE
        try:
            with open(self.path(block_id, ".act"), "xb") as file:
                file.truncate(self.size)
        except FileExistsError:
            return DUPLICATE
        return 0

    def lookup(self, block_ids):
        return [os.path.exists(self.path(one, ".dat")) for one in block_ids]

    def prefetch(self, block_ids):
        pass

    def dump(self, block_ids, offset, src_tensor):
        for block_id, at, tensor in zip(block_ids, offset, src_tensor, strict=True):
            with open(self.path(block_id, ".act"), "r+b") as file:
                file.seek(at)
                file.write(memoryview(tensor.numpy()))
        return Done(0)

    def load(self, block_ids, offset, dst_tensor):
        code = 0
        for block_id, at, tensor in zip(block_ids, offset, dst_tensor, strict=True):
            try:
                with open(self.path(block_id, ".dat"), "rb") as file:
                    file.seek(at)
                    file.readinto(memoryview(tensor.numpy()))
            except OSError:
                code = -1
        return Done(code)

    def wait(self, task):
        return task.code

    def check(self, task):
        return task.code, True

    def commit(self, block_ids, is_success=True):
        for block_id in block_ids:
            if os.path.exists(self.path(block_id, ".act")):
                if is_success:
                    os.rename(self.path(block_id, ".act"), self.path(block_id, ".dat"))
                else:
                    os.unlink(self.path(block_id, ".act"))
