"""A host call made again for another number of devices, or with other dynamic extents.

    free = Extents(call)
    free.world          symbols that are the number of devices: NR in `x: pl.Tensor[[NR, 1, 8], pl.FP32]`
    free.sizes          the other symbols and what the call bound them to
    free.made(call, 3, {"LENGTH": 7})       the call on three devices, with vectors of seven

Which symbol is the number of devices is told from the call: it is the first extent of a tensor, and as
large as the world. Tensors whose shape changes are made anew (`contents` says with what in them); all
others, and scalars, stay as the program gave them.

Not modelled: arguments that follow from a size in another way than through a dynamic extent. So a symbol
that a scalar argument equals is left as it is, and so is a call on windows that a worker retained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.frontends.pypto.annotations import Symbol, bound
from harness.frontends.pypto.calls import HostCall
from harness.frontends.pypto.functions import bindings
from harness.scenario import values

GROWTH = 4  # a size goes up to so many times what the program passes
ODD = (1, 3, 7)


class Extents:
    """The dynamic extents of a call. world: symbols equal to its number of devices. sizes: the others."""

    def __init__(self, call: HostCall) -> None:
        self.world: frozenset[str] = frozenset()
        self.sizes: dict[str, int] = {}
        if call.function.kind != "host" or call.kept is not None:
            return
        declared = _declared(call)
        symbols: dict[str, int] = {}
        for _, shape, tensor in declared:
            symbols |= bindings(shape, tuple(tensor.shape))
        if any(_shape(shape, symbols) != tuple(tensor.shape) for _, shape, tensor in declared):
            return  # a rule's matter
        first = {shape[0].name for _, shape, _ in declared if shape and isinstance(shape[0], Symbol)}
        equalled = {value for value in call.args if type(value) is int}
        free = {name: n for name, n in symbols.items() if n not in equalled}
        self.world = frozenset(name for name in first if free.get(name) == call.size)
        self.sizes = {
            name: n for name, n in free.items() if n > 0 and name not in self.world
        }

    def choices(self, name: str) -> tuple[int, ...]:
        """The sizes to draw for a symbol, that of the program first."""
        size = self.sizes[name]
        others = (*ODD, size - 1, size + 1, 2 * size + 1)
        return tuple(dict.fromkeys((size, *(n for n in others if 1 <= n <= GROWTH * size))))

    def made(self, call: HostCall, ranks: int, sizes: Mapping[str, int]) -> HostCall:
        """The call on `ranks` devices with these sizes; those that are not named stay."""
        declared = _declared(call)
        symbols: dict[str, int] = {}
        for _, shape, tensor in declared:
            symbols |= bindings(shape, tuple(tensor.shape))
        symbols |= {**sizes, **dict.fromkeys(self.world, ranks)}
        args = list(call.args)
        anew: dict[int, torch.Tensor] = {}  # a tensor given twice stays one
        for index, shape, tensor in declared:
            wanted = tuple(max(extent, 0) for extent in _shape(shape, symbols))
            if wanted == tuple(tensor.shape):
                continue
            if id(tensor) not in anew:
                annotation = call.function.annotations[index]
                blank = annotation is not None and annotation.direction == "out"
                a_row_each = isinstance(shape[0], Symbol) and shape[0].name in self.world
                anew[id(tensor)] = (
                    torch.zeros(wanted, dtype=tensor.dtype) if blank
                    else contents(tensor, wanted, index, rows=wanted[0] if a_row_each else 1)
                )
            args[index] = anew[id(tensor)]
        ids = call.device_ids if ranks == call.size else tuple(range(ranks))
        return HostCall(call.function, call.owner, args, ids, overrides=call.overrides)


def contents(tensor: torch.Tensor, shape: tuple[int, ...], number: int, *, rows: int) -> torch.Tensor:
    """What stands in argument `number` for `tensor`, in another shape of `rows` rows, one a rank.

    Zeros stay zeros: the program may add to them. Floats are unique by rank and element
    (scenario.values). Integers may be counts or places, so they stay in the range of the program's own.
    """
    made = torch.zeros(shape, dtype=tensor.dtype)
    if not made.numel() or not tensor.any():
        return made
    if tensor.is_floating_point():
        each = [values(row, made.numel() // rows, number, tensor.dtype) for row in range(rows)]
        return torch.cat(each).reshape(shape)
    low, high = int(tensor.min()), int(tensor.max())
    each = [values(row, made.numel() // rows, number, torch.int64) for row in range(rows)]
    return (low + torch.cat(each) % (high - low + 1)).to(tensor.dtype).reshape(shape)


def _declared(call: HostCall) -> list[tuple[int, Sequence[Any], torch.Tensor]]:
    """The tensors whose shape is declared: position, declared shape, tensor."""
    return [
        (index, one.shape, value)
        for index, (one, value) in enumerate(zip(call.function.annotations, call.args, strict=True))
        if one is not None and one.shape is not None and isinstance(value, torch.Tensor)
    ]


def _shape(declared: Sequence[Any], symbols: dict[str, int]) -> tuple[int, ...]:
    with bound(symbols):
        return tuple(map(int, declared))
