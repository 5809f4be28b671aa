"""LMCache's local-disk backend, and its L2 interface, behind the adapter's protocol.

LMCache needs other versions of our dependencies, so it lives in an environment of its own, which
`requirements/install_lmcache.sh` makes; a subject process runs under the Python in that place.
RANKFAULT_LMCACHE_PYTHON names another one. Signatures as of 0.5.6. What it does not promise is declared:
the local-disk backend has its index in memory. Not modelled: GPUs, the remote backends behind L2.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch

from scenarios.store.adapters.adapter import Adapter
from scenarios.store.adapters.black_box import black_box

VARIABLE = "RANKFAULT_LMCACHE_PYTHON"
PLACE = ".lmcache/bin/python"
STAGING_BYTES = 16 << 20
PUT_SECONDS = 2.0
L2_MILLISECONDS = 5000
MODEL = "rankfault"


class _LMCache(Adapter):
    """Where LMCache is found."""

    several_processes = False
    deadline = 60.0  # its import takes 4 s on a quiet machine
    package = "lmcache"

    @classmethod
    def interpreter(cls) -> str:
        """The Python of LMCache's own environment."""
        return os.environ.get(VARIABLE) or str(Path(__file__).resolve().parents[3] / PLACE)

    @classmethod
    def missing(cls) -> str:
        """Says how to get it."""
        return "" if cls.version() else "lmcache is not installed: requirements/install_lmcache.sh"

    @classmethod
    def version(cls) -> str:
        """Of the package in that environment."""
        environment = Path(cls.interpreter()).parent.parent
        places = [str(path) for path in environment.glob("lib/python3*/site-packages")]
        found = list(metadata.distributions(name="lmcache", path=places)) if places else []
        return f"lmcache {found[0].version}" if found else ""

    def __init__(self) -> None:
        os.environ["LMCACHE_TRACK_USAGE"] = "false"
        os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")


class LMCacheDisk(_LMCache):
    """`LocalDiskBackend` with a staging pool of its own; a put is waited for."""

    survives_restart = False
    survives_kill = False

    def open(self, folder: str) -> None:
        """The backend on the folder."""
        config = import_module("lmcache.v1.config").LMCacheEngineConfig.from_defaults(
            local_cpu=False, local_disk=folder, max_local_disk_size=1.0, lmcache_instance_id=MODEL,
        )
        allocator = import_module("lmcache.v1.memory_allocators.mixed_memory_allocator")
        backend = "lmcache.v1.storage_backend.local_{}_backend"
        self.staging = import_module(backend.format("cpu")).LocalCPUBackend(
            config, memory_allocator=allocator.MixedMemoryAllocator(STAGING_BYTES), dst_device="cpu"
        )
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        self.backend = import_module(backend.format("disk")).LocalDiskBackend(
            config, loop, self.staging, dst_device="cpu"
        )
        self.formats = import_module("lmcache.v1.memory_management").MemoryFormat
        self.key_type = import_module("lmcache.utils").CacheEngineKey

    def put(self, block_id: bytes, source: Any) -> None:
        """Copy it into the staging pool, submit, wait until the put task is gone."""
        key = self._key(block_id)
        held = self.staging.allocate(source.shape, torch.uint8, self.formats.KV_2LTD)
        held.tensor.copy_(source)
        self.backend.submit_put_task(key, held)
        held.ref_count_down()
        until = time.monotonic() + PUT_SECONDS
        while self.backend.exists_in_put_tasks(key):
            if time.monotonic() > until:
                raise TimeoutError("its put task does not end")
            time.sleep(0.001)

    def get(self, block_id: bytes, target: Any) -> bool:
        """Load it into the staging pool, copy it out."""
        held = self.backend.get_blocking(self._key(block_id))
        if held is None:
            return False
        target.copy_(held.tensor.view(-1)[: target.numel()])
        held.ref_count_down()
        return True

    def has(self, block_id: bytes) -> bool:
        """As the backend says."""
        return bool(self.backend.contains(self._key(block_id)))

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()

    def _key(self, block_id: bytes) -> Any:
        return self.key_type(MODEL, 1, 0, int.from_bytes(block_id[:7], "big"), torch.uint8)


class LMCacheL2(_LMCache):
    """The L2 adapter `fs`: tasks that end by an event descriptor and a bitmap."""

    kind = "fs"

    def open(self, folder: str) -> None:
        """The adapter on the folder, as the command line makes it."""
        at = "lmcache.v1.distributed."
        adapters = import_module(f"{at}l2_adapters")
        parse = import_module(f"{at}l2_adapters.config").parse_args_to_l2_adapters_config
        spec = json.dumps({"type": self.kind, "base_path": folder})
        memory = torch.empty(1 << 16, dtype=torch.uint8)
        described = import_module(f"{at}internal_api").L1MemoryDesc(
            ptr=memory.data_ptr(), size=memory.numel(), align_bytes=1
        )
        (config,) = parse(Namespace(l2_adapter=[spec])).adapters
        self.adapter = adapters.create_l2_adapter(config, l1_memory_desc=described)
        self.objects = import_module("lmcache.v1.memory_management")
        self.key_type = import_module(f"{at}api").ObjectKey

    def dump(self, block_ids: Sequence[bytes], sources: Sequence[Any]) -> None:
        """One store task; it fails as a whole."""
        if not block_ids:
            return
        task = self.adapter.submit_store_task(self._keys(block_ids), self._held(sources))
        self._wait(self.adapter.get_store_event_fd())
        if not self.adapter.pop_completed_store_tasks()[task].is_successful():
            raise OSError("the store task failed")

    def load(self, block_ids: Sequence[bytes], targets: Sequence[Any]) -> list[bool]:
        """Look up and lock, one load task, unlock; a block's bit."""
        if not block_ids:
            return []
        keys = self._keys(block_ids)
        there = self._locked(block_ids)
        task = self.adapter.submit_load_task(keys, self._held(targets))
        self._wait(self.adapter.get_load_event_fd())
        bits = self.adapter.query_load_result(task)
        self.adapter.submit_unlock(keys)
        return [hit and bool(bits.test(index)) for index, hit in enumerate(there)]

    def lookup(self, block_ids: Sequence[bytes]) -> list[bool]:
        """Look up and lock, unlock."""
        if not block_ids:
            return []
        found = self._locked(block_ids)
        self.adapter.submit_unlock(self._keys(block_ids))
        return found

    def close(self) -> None:
        """Close the adapter."""
        self.adapter.close()

    def _locked(self, block_ids: Sequence[bytes]) -> list[bool]:
        task = self.adapter.submit_lookup_and_lock_task(self._keys(block_ids), {})
        self._wait(self.adapter.get_lookup_and_lock_event_fd())
        bits = self.adapter.query_lookup_and_lock_result(task)
        return [bool(bits.test(index)) for index in range(len(block_ids))]

    def _wait(self, fd: int) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(L2_MILLISECONDS):
            raise TimeoutError("the task does not end")
        import_module("lmcache.v1.platform").consume_fd(fd)

    def _keys(self, block_ids: Sequence[bytes]) -> list[Any]:
        return [self.key_type(chunk_hash=one, model_name=MODEL, kv_rank=0) for one in block_ids]

    def _held(self, tensors: Sequence[Any]) -> list[Any]:
        return [
            self.objects.TensorMemoryObj(
                one,
                self.objects.MemoryObjMetadata(
                    shape=one.shape, dtype=one.dtype, address=one.data_ptr(), phy_size=one.numel(),
                    fmt=self.objects.MemoryFormat.KV_2LTD, ref_count=1,
                ),
                parent_allocator=None,
            )
            for one in tensors
        ]


disk = black_box(LMCacheDisk, "store.lmcache_disk_")
l2 = black_box(LMCacheL2, "store.lmcache_l2_")
