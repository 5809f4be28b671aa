"""Wrong bytes, named: what a block holds instead of its own data, in one line.

`pattern(expected, got, known)` compares the two and looks for the simplest explanation, in this order:
another length, one flipped bit, bytes of something that is known at their own place (zeros, another
block, the destination's poison, an earlier version), the block's own bytes shifted, known bytes from
another place. Known bytes are also recognised where they cover a part only: a tail, a head, a middle,
several pieces. Data must differ from block to block and along a block, as `values` does; bytes that
agree by chance are put down to the simplest shape.

Not modelled: several causes at once, wrong bytes that were computed (an addition, a conversion).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy

Kind = Literal[
    "length", "bit_flip", "whole", "tail", "head", "middle", "pieces", "shifted", "elsewhere", "unknown"
]
SECTOR = 512
PROBE = 16  # bytes that are looked for elsewhere
PROBES = 8  # places that they are taken from
EXPLAINED = 0.25  # share of the wrong bytes that a shift must account for
_Array = numpy.ndarray[Any, Any]


class Pattern(NamedTuple):
    """What is wrong with a block.

    first, end: the wrong bytes lie in first..end. wrong: how many they are. source: whose bytes they
    are ("zeros", a name of `known`, "its own"), if that is known. offset: how far from their own place
    (bytes; positive: they come late). text: the line.
    """

    kind: Kind
    first: int
    end: int
    wrong: int
    source: str
    offset: int
    text: str


def pattern(expected: bytes, got: bytes, known: Mapping[str, bytes] | None = None) -> Pattern | None:
    """How `got` differs from `expected`; None if it does not.

    known: what else the bytes may be, by the name that the line gives it ("block 3", "the poison of
    the destination"); each starts at the same place as the block does.
    """
    if expected == got:
        return None
    if len(expected) != len(got):
        return _length(expected, got, known or {})
    wanted, held = _array(expected), _array(got)
    wrong = numpy.flatnonzero(wanted != held)
    if len(wrong) == 1 and (wanted[wrong[0]] ^ held[wrong[0]]).bit_count() == 1:
        at = int(wrong[0])
        bit = int(wanted[at] ^ held[at]).bit_length() - 1
        return Pattern("bit_flip", at, at + 1, 1, "", 0, f"one bit differs: bit {bit} of byte {at}")
    zeros = {"zeros": bytes(len(expected))}
    sources = {**zeros, **(known or {})}
    for name, data in sorted(sources.items(), key=lambda one: one[1] != got):  # all of it comes first
        other = _array(data[: len(expected)])
        if wrong[-1] < len(other) and bool((held[wrong] == other[wrong]).all()):
            return _covered(name, wanted, held, other, wrong)
    return _moved(expected, got, known or {}, wrong) or _unknown(wanted, held, wrong)


def cause_of(found: Pattern, *, poison: str = "", reused: str = "") -> str:
    """The row of the table of causes (harness/diagnosis/table.py) that a pattern speaks for; "": none.

    poison, reused: the names in `known` of what the destination held before the load, and of what the
    source held after the dump was asked for.
    """
    if found.source and found.source == reused:
        return "source_reused"
    if found.kind == "whole":
        return {"zeros": "partly_written", poison: "not_filled"}.get(found.source, "other_block")
    if found.kind == "shifted" and abs(found.offset) < SECTOR:
        return "misaligned"
    rows = {"bit_flip": "bit_flipped", "shifted": "wrong_offset", "elsewhere": "wrong_offset"}
    return rows.get(found.kind, "" if found.kind == "unknown" else "partly_written")


def swapped(expected: Sequence[bytes], got: Sequence[bytes]) -> list[tuple[int, int]]:
    """Pairs (a, b), a < b, of blocks that hold each other's data."""
    places: dict[bytes, int] = {}
    for index, data in enumerate(expected):
        places.setdefault(data, index)
    return [
        (index, other) for index, data in enumerate(got)
        if (other := places.get(data, index)) > index and got[other] == expected[index]
    ]


def _array(data: bytes) -> _Array:
    return numpy.frombuffer(data, dtype=numpy.uint8)


def _length(expected: bytes, got: bytes, known: Mapping[str, bytes]) -> Pattern:
    shared = min(len(expected), len(got))
    inner = pattern(expected[:shared], got[:shared], known)
    first = inner.first if inner else shared
    told = f"{len(got)} bytes instead of {len(expected)}"
    told += f"; before that, {inner.text}" if inner else f", right up to byte {shared}"
    longest = max(len(expected), len(got))
    wrong = longest - shared + (inner.wrong if inner else 0)
    return Pattern("length", first, longest, wrong, "", 0, told)


def _covered(name: str, wanted: _Array, held: _Array, other: _Array, wrong: _Array) -> Pattern:
    """All wrong bytes are `name`'s, at their own place: the shape they have."""
    size = len(wanted)
    same = numpy.zeros(size, dtype=bool)
    same[: len(other)] = held[: len(other)] == other
    first, end = int(wrong[0]), int(wrong[-1]) + 1
    # Bytes in which both agree hide where the cut was; a sector's edge is the likelier place.
    edge = first - first % SECTOR
    if same[edge:first].all():
        first = edge
    if same[end:].all():
        end = size
    inside = bool(same[first:end].all())
    whose = name if name == "zeros" else f"those of {name}"
    if not inside:
        cuts = numpy.flatnonzero(numpy.diff(wrong) > 1)
        told = f"{len(wrong)} bytes in {len(cuts) + 1} pieces within {first}..{end} are {whose}"
        return Pattern("pieces", first, end, len(wrong), name, 0, told)
    kind: Kind = "middle"
    if first == 0 and end == size:
        kind, told = "whole", f"all {size} bytes are {whose}"
    elif end == size:
        kind, told = "tail", f"right up to byte {first}{_unit(first)}, then {whose}"
    elif first == 0:
        kind, told = "head", f"the first {end} bytes{_unit(end)} are {whose}, the rest is right"
    else:
        told = f"bytes {first}..{end} are {whose}, the rest is right"
    return Pattern(kind, first, end, len(wrong), name, 0, told)


def _unit(at: int) -> str:
    """A word on a cut that lies on a page or a sector."""
    unit = next((unit for unit in (4096, SECTOR) if at and at % unit == 0), 0)
    return f" ({at // unit} x {unit})" if unit else ""


def _moved(expected: bytes, got: bytes, known: Mapping[str, bytes], wrong: _Array) -> Pattern | None:
    """The wrong bytes are the block's own, or known ones, from another place: the best explanation."""
    first, end = int(wrong[0]), int(wrong[-1]) + 1
    share, name, offset = 0.0, "", 0
    for one, data in {"its own": expected, **known}.items():
        for by in _offsets(got, data, first, end):
            explained = _explained(got, data, wrong, by)
            if explained > share:
                share, name, offset = explained, one, by
    if share < EXPLAINED:
        return None
    way = f"{abs(offset)} bytes too {'late' if offset > 0 else 'early'}"
    way += "" if first == 0 else f" from byte {first}"
    way += "" if share > 0.9 else f" ({share:.0%} of the wrong bytes)"
    if name == "its own":
        told = f"shifted: its own bytes come {way}"
        return Pattern("shifted", first, end, len(wrong), name, offset, told)
    return Pattern("elsewhere", first, end, len(wrong), name, offset, f"the bytes of {name}, {way}")


def _offsets(got: bytes, data: bytes, first: int, end: int) -> Iterator[int]:
    """By how much bytes of `got` taken here and there are off from where `data` has them."""
    seen = {0}
    for turn in range(PROBES):
        at = first + (end - first - PROBE) * (turn + 1) // (PROBES + 1)
        found = data.find(got[at : at + PROBE]) if at >= 0 and at + PROBE <= len(got) else -1
        if found >= 0 and at - found not in seen:
            seen.add(at - found)
            yield at - found


def _explained(got: bytes, data: bytes, wrong: _Array, offset: int) -> float:
    """The share of the wrong bytes that are `data`'s, moved by `offset`."""
    held, other = _array(got), _array(data)
    places = wrong - offset
    inside = (places >= 0) & (places < len(other))
    return float((held[wrong[inside]] == other[places[inside]]).sum() / len(wrong))


def _unknown(wanted: _Array, held: _Array, wrong: _Array) -> Pattern:
    first, end = int(wrong[0]), int(wrong[-1]) + 1
    told = (
        f"{len(wrong)} of {len(wanted)} bytes differ, within {first}..{end}; the first is"
        f" {held[first]:#04x} instead of {wanted[first]:#04x}"
    )
    return Pattern("unknown", first, end, len(wrong), "", 0, told)
