"""Hypothesis strategies for a scenario's parameters, from the bounds of their annotations.

Integers, floats, booleans, strings, literals, enums, tuples, lists and Structs of these; texts of a
Faker provider where an annotation's `Meta(extra={"faker": "sentence"})` names one.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

from harness.errors import UsageError

INT_SPAN = 64
LENGTH_SPAN = 4
STRING_MAX = 8
FAKED = 1000  # different texts of a provider


def struct_values(
    struct: type[msgspec.Struct], *, but: Collection[str] = ()
) -> st.SearchStrategy[Any]:
    """Values of a msgspec Struct within the bounds of its annotations; fields in `but` keep their
    defaults."""
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    name = struct.__name__
    fields = {f.name: values_of(f.type, f"{name}.{f.name}") for f in info.fields if f.name not in but}
    return st.builds(struct, **fields)


def values_of(info: types.Type, where: str) -> st.SearchStrategy[Any]:
    """Values of one annotated type. where: names the field in errors. Raises UsageError."""
    if isinstance(info, types.IntType):
        return _integers(info)
    if isinstance(info, types.FloatType):
        return _floats(info)
    if isinstance(info, types.BoolType):
        return st.booleans()
    if isinstance(info, types.LiteralType):
        return st.sampled_from(list(info.values))
    if isinstance(info, types.EnumType):
        return st.sampled_from(list(info.cls))
    if isinstance(info, types.StrType):
        return _strings(info)
    if isinstance(info, types.NoneType):
        return st.none()
    if isinstance(info, types.UnionType):
        return st.one_of(*(values_of(member, where) for member in info.types))
    if isinstance(info, types.VarTupleType | types.ListType):
        low = info.min_length or 0
        high = info.max_length if info.max_length is not None else low + LENGTH_SPAN
        made = st.lists(values_of(info.item_type, where), min_size=low, max_size=high)
        return made if isinstance(info, types.ListType) else made.map(tuple)
    if isinstance(info, types.TupleType):
        return st.tuples(*(values_of(member, where) for member in info.item_types))
    if isinstance(info, types.StructType):
        fields = {f.name: values_of(f.type, f"{where}.{f.name}") for f in info.fields}
        return st.builds(info.cls, **fields)
    if isinstance(info, types.Metadata):
        provider = (info.extra or {}).get("faker")
        return values_of(info.type, where) if provider is None else _texts(provider, where)
    raise UsageError(
        f"{where}: no strategy for {type(info).__name__}; parameters are ints, floats, bools, "
        "strings, literals, enums, tuples, lists and Structs of these"
    )


def _integers(info: types.IntType) -> st.SearchStrategy[int]:
    """Ints within the bounds; a missing bound is `INT_SPAN` away from the other (or from zero)."""
    step = info.multiple_of or 1
    low = info.ge if info.ge is not None else info.gt + 1 if info.gt is not None else None
    high = info.le if info.le is not None else info.lt - 1 if info.lt is not None else None
    if low is None:
        low = 0 if high is None or high >= 0 else high - INT_SPAN * step
    if high is None:
        high = max(low, 0) + INT_SPAN * step
    if step == 1:
        return st.integers(low, high)
    return st.integers(-(-low // step), high // step).map(lambda count: count * step)


def _floats(info: types.FloatType) -> st.SearchStrategy[float]:
    """Finite floats within the bounds; a missing bound is 1 away from the other (or from zero)."""
    low = info.ge if info.ge is not None else info.gt
    high = info.le if info.le is not None else info.lt
    if low is None:
        low = 0.0 if high is None or high > 0 else high - 1.0
    if high is None:
        high = max(low, 0.0) + 1.0
    return st.floats(low, high, exclude_min=info.gt == low, exclude_max=info.lt == high)


def _strings(info: types.StrType) -> st.SearchStrategy[str]:
    """Letters and digits within the length bounds, or what the pattern wants."""
    low = info.min_length or 0
    high = info.max_length if info.max_length is not None else max(low, STRING_MAX)
    if info.pattern is not None:
        made = st.from_regex(info.pattern, alphabet=st.characters(codec="ascii"))
        return made.filter(lambda text: low <= len(text) and (
            info.max_length is None or len(text) <= info.max_length
        ))
    letters = st.characters(codec="ascii", categories=("L", "N"))
    return st.text(letters, min_size=low, max_size=high)


def _texts(provider: str, where: str) -> st.SearchStrategy[str]:
    """Texts of a Faker provider, for fields with `Meta(extra={"faker": "sentence"})`.

    A plan holds the text, never what Faker was seeded with.
    """
    from faker import Faker  # a tenth of a second, for scenarios that have texts

    source = Faker("en_GB")
    if not hasattr(source, provider):
        raise UsageError(f"{where}: Faker has no provider {provider!r}")

    def text(number: int) -> str:
        source.seed_instance(number)
        return str(getattr(source, provider)())

    return st.integers(0, FAKED - 1).map(functools.cache(text))
