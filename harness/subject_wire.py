"""What passes between the harness and a subject process: messages, and tensors in shared memory.

A message is its length and one msgpack value: None, bool, int, float, str, bytes, lists, dicts with
such keys, and tensors. A tensor travels as a place in memory that both processes map; its bytes are
never sent. Not modelled: tensors on devices, and messages of more than 256 MiB.
"""

from __future__ import annotations

import mmap
import socket
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from harness.ambient import now
from harness.errors import UsageError

TENSOR = 1
PAGE = 4096
BODY_MAX = 256 << 20
_LENGTH = struct.Struct("<I")


class Memory:
    """A shared mapping from which tensors are cut. `free`: the first byte that nobody uses. fd: where it
    came from, which a subject process keeps open."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self.free = 0
        self._map = mmap.mmap(fd, size)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self._address = self._bytes.data_ptr()

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype = torch.uint8, *, shift: int = 0
    ) -> torch.Tensor:
        """A new tensor, `shift` bytes behind the beginning of a page. Raises UsageError if full."""
        if type(shift) is not int or shift < 0:
            raise UsageError(f"subject: shift: given {shift!r}; allowed an integer from 0 on")
        at = -(-self.free // PAGE) * PAGE + shift
        count = torch.Size(shape).numel()
        end = at + count * dtype.itemsize
        if end > self.size:
            raise UsageError(
                f"subject: a tensor of {count * dtype.itemsize} bytes does not fit into the"
                f" {self.size - self.free} that are left of memory={self.size}"
            )
        self.free = end
        return self.view(at, shape, dtype)

    def view(self, at: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """The tensor that lies at byte `at`."""
        count = torch.Size(shape).numel()
        if not count:
            return torch.empty(tuple(shape), dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=at).reshape(tuple(shape))

    def place(self, tensor: torch.Tensor) -> int:
        """Where in the mapping the tensor lies; a copy is made of one that lies elsewhere."""
        at = tensor.data_ptr() - self._address
        inside = 0 <= at <= self.size - tensor.numel() * tensor.element_size()
        if inside and tensor.is_contiguous():
            return at
        copy = self.tensor(tensor.shape, tensor.dtype)
        copy.copy_(tensor)
        return copy.data_ptr() - self._address if copy.numel() else 0

    def pack(self, value: Any) -> bytes:
        """`value` as bytes. Raises TypeError that names what cannot be sent."""

        def hook(one: Any) -> Any:
            dense = isinstance(one, torch.Tensor) and one.layout == torch.strided
            if dense and one.device.type == "cpu" and not one.is_quantized:
                dtype = str(one.dtype).removeprefix("torch.")
                place = msgspec.msgpack.encode((self.place(one.detach()), list(one.shape), dtype))
                return msgspec.msgpack.Ext(TENSOR, place)
            what = type(one).__name__
            if isinstance(one, torch.Tensor):
                what = f"a tensor of {one.layout}, {one.dtype} on {one.device}"
            raise TypeError(
                f"{what} cannot be sent; None, bool, int, float, str, bytes, lists, dicts and dense CPU"
                " tensors can"
            )

        data = msgspec.msgpack.encode(value, enc_hook=hook)
        if len(data) > BODY_MAX:
            raise TypeError(f"{len(data)} bytes cannot be sent; {BODY_MAX} at most, tensors not counted")
        return data

    def unpack(self, data: bytes) -> Any:
        """The value; its tensors are views of the shared memory."""

        def hook(code: int, place: memoryview) -> Any:
            at, shape, dtype = msgspec.msgpack.decode(bytes(place))
            return self.view(at, shape, getattr(torch, dtype))

        return msgspec.msgpack.decode(data, ext_hook=hook)


def send(link: socket.socket, data: bytes) -> None:
    """One message."""
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive(link: socket.socket, deadline: float | None = None) -> bytes | None:
    """One message; None when the other end is gone. deadline: of the last byte, by harness.ambient.now;
    raises TimeoutError."""
    head = _exactly(link, _LENGTH.size, deadline)
    return None if head is None else _exactly(link, _LENGTH.unpack(head)[0], deadline)


def _exactly(link: socket.socket, count: int, deadline: float | None) -> bytes | None:
    parts = []
    while count:
        if deadline is not None:
            link.settimeout(max(deadline - now(), 0.001))
        try:
            part = link.recv(min(count, 1 << 20))
        except ConnectionResetError:
            return None
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
