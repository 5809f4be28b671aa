"""`pl`'s arithmetic on tiles: element by element, reductions, broadcasts, matmul, casts, comparisons.

Plain torch on the core's own values. Each takes tiles, or tensors, which are loaded first; scalars where
the hardware has a scalar form. What of a result is valid is what of its operands is. Integer arithmetic
wraps, integer division truncates, halves round at each step.

Not modelled: scratch tiles (`tmp`), the order in which a reduction adds, high-precision modes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness.errors import WrongArgument, WrongShape
from harness.frontends.pypto.dtypes import BOOL, DataType, dtype_of
from harness.frontends.pypto.operands import Accumulator, Later, padded, tile_of
from harness.frontends.pypto.scalars import DeviceInt, scalar, truncated
from harness.frontends.pypto.values import HostTensor, Tile, View, WindowView, dims_of

TENSORS = Tile | View | Later | HostTensor | WindowView
COMPARISONS = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)
ROUNDING: dict[Any, str] = dict(enumerate(("none", "rint", "round", "floor", "ceil", "trunc", "odd")))


def _valid(*tiles: Tile, shape: torch.Size) -> tuple[int, ...] | None:
    """What of a result of `shape` is valid: what of every operand of that shape is."""
    given = [tile.valid for tile in tiles if tile.valid is not None and tile.data.shape == shape]
    return tuple(map(min, zip(*given, strict=True))) if given else None


def _made(data: torch.Tensor, *tiles: Tile) -> Tile:
    return Tile(data, _valid(*tiles, shape=data.shape), dtype_of(data.dtype))


def _elementwise(
    name: str, compute: Callable[[Any, Any], Any], on_scalars: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    def operation(lhs: Any, rhs: Any, *_scratch: Any, **_modes: Any) -> Any:
        if not isinstance(lhs, TENSORS):
            if isinstance(rhs, TENSORS):
                raise WrongArgument(f"pl.{name}: the scalar goes on the right")
            return on_scalars(lhs, rhs)
        left = tile_of(lhs)
        if not isinstance(rhs, TENSORS):
            value = rhs if left.dtype.floating else int(rhs)
            return Tile(compute(left.data, value).to(left.data.dtype), left.valid, left.dtype)
        right = tile_of(rhs)
        try:
            return _made(compute(left.data, right.data), left, right)
        except RuntimeError:
            raise WrongShape(f"pl.{name} of {left!r} and {right!r}") from None

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"pl.{name}: element by element, of tiles, a tile and a scalar, or scalars."
    return operation


def _divided(lhs: torch.Tensor, rhs: Any) -> torch.Tensor:
    floating = lhs.is_floating_point()
    return torch.div(lhs, rhs) if floating else torch.div(lhs, rhs, rounding_mode="trunc")


def _quotient(lhs: Any, rhs: Any) -> Any:
    if isinstance(lhs, float) or isinstance(rhs, float):
        return lhs / rhs
    return lhs // rhs if isinstance(lhs, DeviceInt) else truncated(lhs, rhs)


add = _elementwise("add", torch.add, lambda a, b: a + b)
sub = _elementwise("sub", torch.sub, lambda a, b: a - b)
mul = _elementwise("mul", torch.mul, lambda a, b: a * b)
div = _elementwise("div", _divided, _quotient)
fmod = _elementwise("fmod", torch.fmod, lambda a, b: a % b)
rem = _elementwise("rem", torch.remainder, lambda a, b: a % b)


def _clamped(compute: Callable[..., torch.Tensor]) -> Callable[[Any, Any], torch.Tensor]:
    return lambda a, b: compute(a, b if isinstance(b, torch.Tensor) else torch.tensor(b, dtype=a.dtype))


maximum = _elementwise("maximum", _clamped(torch.maximum), max)
minimum = _elementwise("minimum", _clamped(torch.minimum), min)
and_ = _elementwise("and_", torch.bitwise_and, lambda a, b: a & b)
or_ = _elementwise("or_", torch.bitwise_or, lambda a, b: a | b)
xor = _elementwise("xor", torch.bitwise_xor, lambda a, b: a ^ b)
shl = _elementwise("shl", torch.bitwise_left_shift, lambda a, b: a << b)
shr = _elementwise("shr", torch.bitwise_right_shift, lambda a, b: a >> b)


def smaller(lhs: Any, rhs: Any) -> Any:
    """`pl.min` of two scalars."""
    return _chosen(lhs, rhs, min)


def larger(lhs: Any, rhs: Any) -> Any:
    """`pl.max` of two scalars."""
    return _chosen(lhs, rhs, max)


def _chosen(lhs: Any, rhs: Any, which: Callable[[Any, Any], Any]) -> Any:
    if isinstance(lhs, TENSORS) or isinstance(rhs, TENSORS):
        raise WrongArgument("pl.min and pl.max take scalars; a tile is reduced by row_max, col_max, …")
    return which(lhs, rhs)


def _unary(name: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Tile]:
    def operation(input: Any, *_scratch: Any, **_modes: Any) -> Tile:
        tile = tile_of(input)
        return Tile(compute(tile.data).to(tile.data.dtype), tile.valid, tile.dtype)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"pl.{name} of each element."
    return operation


neg = _unary("neg", torch.neg)
absolute = _unary("abs", torch.abs)
exp = _unary("exp", torch.exp)
log = _unary("log", torch.log)
sin = _unary("sin", torch.sin)
cos = _unary("cos", torch.cos)
sqrt = _unary("sqrt", torch.sqrt)
rsqrt = _unary("rsqrt", torch.rsqrt)
recip = _unary("recip", torch.reciprocal)
relu = _unary("relu", torch.relu)
not_ = _unary("not_", torch.bitwise_not)


def lrelu(tile: Any, slope: float) -> Tile:
    """Leaky rectified linear."""
    held = tile_of(tile)
    return Tile(torch.where(held.data > 0, held.data, held.data * slope), held.valid, held.dtype)


# Reductions and broadcasts ------------------------------------------------------------------------


def _reduction(
    name: str, compute: Callable[[torch.Tensor, int], torch.Tensor], axis: int
) -> Callable[..., Tile]:
    def operation(input: Any, tmp_tile: Any = None) -> Tile:
        tile = tile_of(input)
        if len(tile.shape) < 2:
            raise WrongShape(f"pl.{name} of {tile!r}: two axes are due")
        along = axis if axis == -1 else len(tile.shape) - 2
        reduced = compute(tile.real, along)
        if reduced.dtype is torch.int64 and "arg" in name:
            reduced = reduced.to(torch.int32)
        elif reduced.dtype is not tile.data.dtype:
            reduced = reduced.to(tile.data.dtype)
        physical = list(tile.shape)
        physical[along] = 1
        return padded(reduced, tuple(physical), dtype_of(reduced.dtype))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"pl.{name}: {'the last' if axis == -1 else 'the second last'} axis becomes one."
    return operation


def _summed(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.sum(axis, keepdim=True)


def _product(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.prod(axis, keepdim=True)


def _largest(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.amax(axis, keepdim=True)


def _smallest(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.amin(axis, keepdim=True)


def _where_largest(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.argmax(axis, keepdim=True)


def _where_smallest(data: torch.Tensor, axis: int) -> torch.Tensor:
    return data.argmin(axis, keepdim=True)


REDUCTIONS = {
    f"{way}_{what}": _reduction(f"{way}_{what}", compute, axis)
    for way, axis in (("row", -1), ("col", -2))
    for what, compute in (
        ("sum", _summed), ("prod", _product), ("max", _largest), ("min", _smallest),
        ("argmax", _where_largest), ("argmin", _where_smallest),
    )
}


def _expanded(name: str, compute: Callable[[Any, Any], torch.Tensor]) -> Callable[..., Tile]:
    def operation(target: Any, vector: Any, tmp: Any = None) -> Tile:
        tile, held = tile_of(target), tile_of(vector)
        shape = list(tile.shape)
        shape[-1 if name.startswith("row") else -2] = 1
        if list(held.shape) != shape:
            raise WrongShape(f"pl.{name} of {tile!r} by {held!r}: a vector {shape} is due")
        return Tile(compute(tile.data, held.data), tile.valid, tile.dtype)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"pl.{name}: a vector along a tile's {'rows' if 'row' in name else 'columns'}."
    return operation


EXPANSIONS = {
    f"{way}_expand{what}": _expanded(f"{way}_expand{what}", compute)
    for way in ("row", "col")
    for what, compute in (
        ("", lambda t, v: v.expand_as(t).clone()), ("_add", torch.add), ("_sub", torch.sub),
        ("_mul", torch.mul), ("_div", _divided), ("_max", torch.maximum), ("_min", torch.minimum),
        ("_expdif", lambda t, v: torch.exp(t - v)),
    )
}


def expands(target: Any, value: Any) -> Tile:
    """A tile like `target` full of one scalar."""
    tile = tile_of(target)
    return Tile(torch.full_like(tile.data, value), tile.valid, tile.dtype)


def expand_clone(src: Any, target: Any) -> Tile:
    """`src` repeated to the shape of `target`."""
    shape = target.shape
    tile = tile_of(src)
    return Tile(tile.real.expand(shape).clone(), None, tile.dtype)


# Matrices -----------------------------------------------------------------------------------------


def matmul(
    lhs: Any, rhs: Any, out_dtype: DataType | None = None,
    a_trans: bool = False, b_trans: bool = False, c_matrix_nz: bool = False,  # noqa: FBT001, FBT002
) -> Tile:
    """A product of matrices, computed and held in FP32 (of integers: INT32)."""
    left, right = tile_of(lhs), tile_of(rhs)
    a, b = left.real, right.real
    a, b = a.mT if a_trans else a, b.mT if b_trans else b
    if a.shape[-1] != b.shape[-2]:
        raise WrongShape(f"pl.matmul of {left!r} and {right!r}")
    wide = torch.float32 if a.is_floating_point() else torch.int32
    product = torch.matmul(a.to(wide), b.to(wide))
    if out_dtype is not None:
        return Tile(product.to(out_dtype.torch), None, out_dtype)
    return Accumulator(product, None, dtype_of(product.dtype))


def matmul_acc(
    acc: Any, lhs: Any, rhs: Any, a_trans: bool = False, b_trans: bool = False,  # noqa: FBT001, FBT002
    init_cond: Any = None,
) -> Tile:
    """The same added to `acc`; where `init_cond` holds, instead of it."""
    product = matmul(lhs, rhs, None, a_trans, b_trans)
    if init_cond:
        return product
    return Accumulator(tile_of(acc).data + product.data, None, product.dtype)


def matmul_bias(lhs: Any, rhs: Any, bias: Any) -> Tile:
    """The same with a row added to each row."""
    product = matmul(lhs, rhs)
    return Accumulator(product.data + tile_of(bias).data, None, product.dtype)


# Types and choices --------------------------------------------------------------------------------


def cast(input: Any, target_type: DataType, mode: Any = "round") -> Any:
    """A tile's elements, or a scalar, as another type. mode: how a float becomes an integer.

    Raises WrongArgument for an unknown mode.
    """
    name = ROUNDING.get(mode, mode)
    if name not in ROUNDING.values():
        raise WrongArgument(f"pl.cast with mode={mode!r}; one of {', '.join(ROUNDING.values())} is due")
    if not isinstance(input, TENSORS):
        return scalar(input, target_type)
    tile = tile_of(input)
    data = tile.data
    if data.is_floating_point() and not target_type.floating:
        data = _rounded(data, name)
    return Tile(data.to(target_type.torch), tile.valid, target_type)


def _rounded(data: torch.Tensor, mode: str) -> torch.Tensor:
    wide = data.to(torch.float64)
    if mode == "floor":
        return wide.floor()
    if mode == "ceil":
        return wide.ceil()
    if mode == "trunc":
        return wide.trunc()
    if mode == "round":  # halves away from zero
        return torch.where(wide < 0, (wide - 0.5).ceil(), (wide + 0.5).floor())
    if mode == "odd":
        kept = wide.trunc()
        return torch.where((kept != wide) & (kept % 2 == 0), kept + wide.sign(), kept)
    return wide.round()


def const(value: Any, dtype: DataType) -> Any:
    """A literal of a type."""
    return scalar(value, dtype)


def cmp(lhs: Any, rhs: Any, cmp_type: int = 0) -> Any:
    """Where a comparison holds. cmp_type: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=."""
    if cmp_type not in range(6):
        raise WrongArgument(f"pl.cmp with cmp_type={cmp_type!r}; 0 to 5 are due")
    left = tile_of(lhs)
    right = tile_of(rhs).data if isinstance(rhs, TENSORS) else rhs
    return Tile(COMPARISONS[cmp_type](left.data, right), left.valid, BOOL)


def sel(mask: Any, lhs: Any, rhs: Any, tmp: Any = None) -> Tile:
    """`lhs` where the mask holds, `rhs` elsewhere."""
    left = tile_of(lhs)
    right = tile_of(rhs).data if isinstance(rhs, TENSORS) else rhs
    data = torch.where(tile_of(mask).data.to(torch.bool), left.data, right)
    return Tile(data.to(left.data.dtype), left.valid, left.dtype)


def reinterpret_view(data: Any, dtype: DataType, *, shape: Any = None) -> Tile:
    """A tile's bytes as another type."""
    tile = tile_of(data)
    seen = tile.data.contiguous().view(dtype.torch)
    return Tile(seen if shape is None else seen.reshape(dims_of(shape)), None, dtype)


