"""Mutants of the far offsets: products of 32-bit factors, widened too late."""

from __future__ import annotations

from harness import mutant
from systems.collectives import far_offsets as twin


@mutant(of=twin.offset, expects="exceptions/out_of_bounds", ranks=2)
def signed_offset_wraps(source: int, tokens: int, width: int) -> int:
    """The offset is a signed 32-bit product, negative from 2 ** 31 on.

    Source: Triton-distributed issue 203. Finding: exceptions/out_of_bounds. Smallest world: 2.
    """
    return (source * tokens * width + (1 << 31)) % (1 << 32) - (1 << 31)


@mutant(of=twin.offset, expects="integrity/wrong_value", ranks=2)
def unsigned_offset_wraps(source: int, tokens: int, width: int) -> int:
    """The offset is an unsigned 32-bit product, which begins again at 0 from 2 ** 32 on.

    Source: Triton-distributed issue 203. Finding: integrity/wrong_value, a row stands where another
    rank's is due. Smallest world: 2.
    """
    return source * tokens * width % (1 << 32)
