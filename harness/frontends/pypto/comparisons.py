"""What a program's own check holds against the outputs of a host call: the tensor that it compares with.

    expected = compared(body, given, number)    body: runs the program; given: its calls' outputs

The program runs again, each call given its outputs, and what torch.equal, torch.allclose or torch.isclose
(torch.testing.assert_close too) compares with an output, or a view of one, is noted. The last comparison
that fails says which elements are wrong, and what was due there.

Not modelled: programs that compare copies of their outputs, or numbers read off them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.frontends.pypto.calls import HostCall, Performer, Substituted

EXACT = frozenset((torch.equal, torch.Tensor.equal))
CLOSE = frozenset((torch.allclose, torch.isclose, torch.Tensor.allclose, torch.Tensor.isclose))


def compared(
    run: Callable[[Performer], Any], given: Sequence[Sequence[torch.Tensor]], number: int
) -> list[torch.Tensor] | None:
    """The outputs of call `number` as the program's check wants them; None where it does not tell."""
    watched = _Watched(given, number)
    with _Watching(watched):
        run(watched)
    return watched.wanted


class _Watched:
    """Gives calls their outputs, and knows where those of one lie until the next call.

    wanted: what is due in their place.
    """

    def __init__(self, given: Sequence[Sequence[torch.Tensor]], number: int) -> None:
        self._given = Substituted(given)
        self._before = number
        self._outputs: list[torch.Tensor] = []
        self.wanted: list[torch.Tensor] | None = None

    def perform(self, call: HostCall) -> list[list[bytes]]:
        """See Performer."""
        found = self._given.perform(call)
        self._outputs = [call.args[index] for index in call.written] if self._before == 0 else []
        self._before -= 1
        return found

    def differs(self, one: torch.Tensor, other: torch.Tensor, wrong: torch.Tensor) -> None:
        """A comparison of the program's has failed at these elements."""
        for index, output in enumerate(self._outputs):
            for seen, due in ((one, other), (other, one)):
                if output.is_contiguous() and _lies_in(seen, output) and not _lies_in(due, output):
                    self.wanted = [held.clone() for held in self._outputs]
                    at = seen.storage_offset() - output.storage_offset()
                    part = self.wanted[index].as_strided(seen.shape, seen.stride(), at)
                    part.copy_(torch.where(wrong, due.to(part.dtype), part))
                    return


def _lies_in(view: torch.Tensor, output: torch.Tensor) -> bool:
    there = view.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
    return there and view.dtype is output.dtype


class _Watching(TorchFunctionMode):
    """Looks at each comparison of two tensors."""

    def __init__(self, watched: _Watched) -> None:
        super().__init__()
        self._watched = watched

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compares as the program does, and once more by element."""
        named = kwargs or {}
        result = func(*args, **named)
        if func in EXACT or func in CLOSE:
            one, other = [*args, *named.values()][:2]
            if one.shape == other.shape:
                alike = one == other if func in EXACT else torch.isclose(*args, **named)
                if not alike.all():
                    self._watched.differs(one, other, ~alike)
        return result
