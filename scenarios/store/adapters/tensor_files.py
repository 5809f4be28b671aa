"""Files of tensors as a store of blocks: safetensors, and torch.save with torch.load(mmap=True).

One file a block, written under a private name and renamed, so that what is found is what the formats
themselves do: a file is mapped when it is first loaded and stays mapped, as loaders of weights keep it.
Neither format has a checksum of its payload; both are driven as if they had, since a wrong weight is as
wrong as a wrong block. Not modelled: several tensors a file, other devices.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from scenarios.store.adapters.adapter import Adapter
from scenarios.store.adapters.black_box import black_box

NAME = "block"


class _TensorFiles(Adapter):
    """What both formats share."""

    ending = ""

    def open(self, folder: str) -> None:
        """The folder holds the files."""
        self.folder = folder
        self.opened: dict[bytes, Any] = {}

    def put(self, block_id: bytes, source: Any) -> None:
        """Write a file; what was mapped before is let go."""
        path = self._path(block_id)
        aside = f"{path}.{os.getpid()}"
        self._write(source, aside)
        os.replace(aside, path)
        self.opened.pop(block_id, None)

    def get(self, block_id: bytes, target: Any) -> bool:
        """Copy one block out of its mapped file."""
        if block_id not in self.opened:
            if not self.has(block_id):
                return False
            self.opened[block_id] = self._mapped(self._path(block_id))
        found = self._tensor(self.opened[block_id])
        if found.shape != target.shape or found.dtype != target.dtype:
            raise ValueError(f"{tuple(found.shape)} {found.dtype} for {tuple(target.shape)} uint8")
        target.copy_(found)
        return True

    def has(self, block_id: bytes) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self._path(block_id))

    def _path(self, block_id: bytes) -> str:
        return os.path.join(self.folder, block_id.hex() + self.ending)

    def _write(self, source: Any, path: str) -> None:
        raise NotImplementedError

    def _mapped(self, path: str) -> Any:
        raise NotImplementedError

    def _tensor(self, mapped: Any) -> Any:
        return mapped


class Safetensors(_TensorFiles):
    """`safe_open` keeps the file mapped."""

    package = "safetensors"
    preload = ("safetensors.torch",)
    ending = ".safetensors"

    def _write(self, source: Any, path: str) -> None:
        importlib.import_module("safetensors.torch").save_file({NAME: source.clone()}, path)

    def _mapped(self, path: str) -> Any:
        return importlib.import_module("safetensors").safe_open(path, framework="pt")

    def _tensor(self, mapped: Any) -> Any:
        return mapped.get_tensor(NAME)


class TorchMapped(_TensorFiles):
    """`torch.load(mmap=True)`: the tensor is the file."""

    package = "torch"
    ending = ".pt"

    def _write(self, source: Any, path: str) -> None:
        torch.save(source.clone(), path)

    def _mapped(self, path: str) -> Any:
        return torch.load(path, mmap=True, weights_only=True)


safetensors = black_box(Safetensors, "store.safetensors_")
torch_mapped = black_box(TorchMapped, "store.torch_mapped_")
