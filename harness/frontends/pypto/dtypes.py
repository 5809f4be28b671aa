"""The element types of `pld` programs, under their names in `pl`.

Each has a torch dtype of the same width, in which its values are held. Not modelled: types of less than
a byte, the 8-bit floats and MX scales; naming one of them is refused (modules.py).
"""

from __future__ import annotations

import torch

from harness.errors import WrongDtype
from harness.fabric.memory import ITEMSIZE


class DataType:
    """An element type. name: as in `pl`. torch: what holds it. bits: its width."""

    __slots__ = ("bits", "floating", "name", "torch")

    def __init__(self, name: str, held: torch.dtype) -> None:
        self.name = name
        self.torch = held
        self.bits = 8 * ITEMSIZE[held]
        self.floating = held.is_floating_point

    def __repr__(self) -> str:
        return f"pl.{self.name}"

    def get_byte(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    def get_bit(self) -> int:
        """Bits of one element."""
        return self.bits


FP32 = DataType("FP32", torch.float32)
FP16 = DataType("FP16", torch.float16)
BF16 = DataType("BF16", torch.bfloat16)
INT8 = DataType("INT8", torch.int8)
INT16 = DataType("INT16", torch.int16)
INT32 = DataType("INT32", torch.int32)
INT64 = DataType("INT64", torch.int64)
UINT8 = DataType("UINT8", torch.uint8)
BOOL = DataType("BOOL", torch.bool)
INDEX = DataType("INDEX", torch.int64)
TASK_ID = DataType("TASK_ID", torch.int64)

DTYPES = {
    one.name: one
    for one in (FP32, FP16, BF16, INT8, INT16, INT32, INT64, UINT8, BOOL, INDEX, TASK_ID)
}
_OF_TORCH = {one.torch: one for one in (FP32, FP16, BF16, INT8, INT16, INT32, INT64, UINT8, BOOL)}


def dtype_of(held: torch.dtype) -> DataType:
    """The element type that a torch tensor's elements are. Raises WrongDtype."""
    if held not in _OF_TORCH:
        known = ", ".join(str(one)[6:] for one in _OF_TORCH)
        raise WrongDtype(f"a tensor of {str(held)[6:]}; pld programs hold {known}")
    return _OF_TORCH[held]
