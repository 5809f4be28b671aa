"""Comparing one rank's result with the reference, element by element.

Bit-exact at tolerance 0 (but -0.0 equals 0.0); NaN is right only where NaN is expected. Not
modelled: containers other than tensors, numbers, None and (nested) lists and tuples of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.fabric.memory import POISON


@dataclass(frozen=True, slots=True)
class Wrong:
    """One result that differs. index: of the first wrong element (-1: the shape is wrong)."""

    label: str
    rank: int
    index: int
    given: Any
    expected: Any
    count: int
    numel: int
    why: str = ""  # of a wrong shape
    given_bytes: bytes = b""
    expected_bytes: bytes = b""
    all_given: bytes = b""
    all_expected: bytes = b""
    dtype: torch.dtype | None = None
    address: int = 0  # of the first wrong element, to find it in a host tensor

    @property
    def poison(self) -> bool:
        """Whether the first wrong element is what unwritten memory holds."""
        return is_poison(self.given_bytes)

    def __str__(self) -> str:
        if self.index < 0:
            return f"{self.label!r} of rank {self.rank}: {self.why}"
        text = (
            f"{self.label!r} of rank {self.rank}: element {self.index} is {self.given}, expected "
            f"{self.expected}"
        )
        if self.numel > 1:
            verb = "is" if self.count == 1 else "are"
            text += f"; {self.count} of {self.numel} elements {verb} wrong"
        return text


def is_poison(data: bytes) -> bool:
    """Whether one element's bytes are poison. Single bytes are too common a value to tell."""
    if len(data) < 2:
        return False
    pattern = POISON * 2
    return data == pattern[: len(data)] or (len(data) == 2 and data == POISON[2:])


def same(given: Any, expected: Any, tolerance: float) -> bool:
    """Whether a result is right; the fast path."""
    if isinstance(given, torch.Tensor) and isinstance(expected, torch.Tensor):
        if given.dtype is not expected.dtype or given.shape != expected.shape:
            return False
        if torch.equal(given, expected):
            return True
        if not tolerance and not expected.dtype.is_floating_point:
            return False
        return not bool(_bad(given, expected, tolerance).any())
    if isinstance(given, list | tuple) and isinstance(expected, list | tuple):
        return len(given) == len(expected) and all(
            same(g, e, tolerance) for g, e in zip(given, expected, strict=True)
        )
    if given is None or expected is None:
        return given is expected
    if isinstance(given, int | float) and isinstance(expected, int | float):
        if math.isnan(expected):
            return math.isnan(given)
        return given == expected or abs(given - expected) <= tolerance
    if isinstance(given, torch.Tensor) or isinstance(expected, torch.Tensor):
        return False
    return bool(given == expected)


def _bad(given: torch.Tensor, expected: torch.Tensor, tolerance: float) -> torch.Tensor:
    """True where an element is wrong."""
    wrong = given != expected
    if tolerance and expected.dtype is not torch.bool:
        wrong &= ~((given.double() - expected.double()).abs() <= tolerance)
    return wrong & ~(torch.isnan(given) & torch.isnan(expected))


def compare(label: str, rank: int, given: Any, expected: Any, tolerance: float) -> Wrong | None:
    """What is wrong with one result, or None."""
    if same(given, expected, tolerance):
        return None
    shape_given, shape_expected = _shape(given), _shape(expected)
    if shape_given != shape_expected:
        return Wrong(label, rank, -1, given, expected, 0, 0,
                     f"given {shape_given}, expected {shape_expected}")
    if isinstance(given, torch.Tensor):
        left, right = given.detach().cpu().reshape(-1), expected.detach().cpu().reshape(-1)
        bad = _bad(left, right, tolerance).nonzero().reshape(-1)
        at = int(bad[0])
        return Wrong(
            label, rank, at, left[at].item(), right[at].item(), len(bad), left.numel(), "",
            _bytes(left[at : at + 1]), _bytes(right[at : at + 1]), _bytes(left), _bytes(right),
            left.dtype, left.data_ptr() + at * left.element_size(),
        )
    if isinstance(given, list | tuple):
        wrong = [i for i, (g, e) in enumerate(zip(given, expected, strict=True))
                 if not same(g, e, tolerance)]
        inner = compare(label, rank, given[wrong[0]], expected[wrong[0]], tolerance)
        assert inner is not None, "the same comparison found it wrong"
        return inner
    return Wrong(label, rank, 0, given, expected, 1, 1)


def _shape(value: Any) -> str:
    """What makes two results comparable."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]} {list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"{len(value)} values"
    if value is None:
        return "nothing"
    return "a number" if isinstance(value, int | float) else f"a {type(value).__name__}"


def _bytes(flat: torch.Tensor) -> bytes:
    return flat.contiguous().view(torch.uint8).numpy().tobytes()


def wrong_results(
    observed: Any, expected: Any, size: int, absent: Sequence[int], tolerance: float
) -> list[Wrong]:
    """Every wrong result, ranks in order; ranks in `absent` are not judged."""
    if observed is expected:
        return []
    if not isinstance(observed, dict) or set(observed) != set(expected):
        labels = sorted(observed) if isinstance(observed, dict) else type(observed).__name__
        return [Wrong("result", -1, -1, None, None, 0, 0,
                      f"given the labels {labels}, expected {sorted(expected)}")]
    found = []
    for label, entries in observed.items():
        wanted = expected[label]
        if len(entries) != len(wanted):
            found.append(Wrong(label, -1, -1, None, None, 0, 0,
                               f"given {len(entries)} results, expected {len(wanted)}"))
            continue
        by_rank = len(entries) == size
        if absent and not by_rank:
            continue
        for rank, given in enumerate(entries):
            if (absent and rank in absent) or same(given, wanted[rank], tolerance):
                continue
            wrong = compare(label, rank if by_rank else -1, given, wanted[rank], tolerance)
            if wrong is not None:
                found.append(wrong)
    return sorted(found, key=lambda wrong: wrong.rank)
