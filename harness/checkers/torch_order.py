"""Where the code of a torch.distributed program leads: calls in another order, and calls left out.

What shows of two calls that do not agree, in the order in which it is asked:

1. They differ in place, and each rank, from where it is, has still to make a call that is written like
   the other's now (same text, no way back in a loop): exchanged order.
2. Here too where one rank has made fewer: from where one rank is, every way on in the same function leads
   past the other's place, and none back (in a loop around both: in this round of it): the other has
   skipped a call.

Calls that agree and are exchanged all the same: torch_swaps.py. Not modelled: order across groups; calls
in functions whose source is not there (1).
"""

from __future__ import annotations

import bisect
import dis
import functools
import linecache
from types import CodeType

from harness.frontends.torch_distributed.calls import Call

_CALLS = frozenset(("CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_METHOD", "CALL_FUNCTION"))
_NEVER_ON = frozenset(
    ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
     "JUMP_BACKWARD_NO_INTERRUPT")
)


@functools.lru_cache(maxsize=256)
def _steps(code: CodeType) -> tuple[dict[int, list[int]], dict[int, str]]:
    """By offset, where an instruction leads without going back; and the text of each call."""
    instructions = list(dis.get_instructions(code))
    ahead: dict[int, list[int]] = {}
    texts: dict[int, str] = {}
    for index, one in enumerate(instructions):
        next_ones = []
        if one.opname not in _NEVER_ON and index + 1 < len(instructions):
            next_ones.append(instructions[index + 1].offset)
        if one.opcode in dis.hasjrel and isinstance(one.argval, int) and one.argval > one.offset:
            next_ones.append(one.argval)
        ahead[one.offset] = next_ones
        if one.opname in _CALLS:
            texts[one.offset] = _text(code, one)
    return ahead, texts


def _at(code: CodeType, lasti: int) -> int:
    """The offset of the instruction at `lasti`, which during a call points into the call's caches."""
    offsets = list(_steps(code)[0])
    return offsets[bisect.bisect_right(offsets, lasti) - 1]


def written(call: Call) -> str:
    """The source text of a call; "" where there is none."""
    return "" if call.code is None else _steps(call.code)[1].get(_at(call.code, call.lasti), "")


def _text(code: CodeType, one: dis.Instruction) -> str:
    """The source of a call, without its spaces; "" where there is no source."""
    at = one.positions
    if at is None or at.lineno is None or at.end_lineno is None:
        return ""
    lines = [linecache.getline(code.co_filename, n) for n in range(at.lineno, at.end_lineno + 1)]
    if not all(lines) or at.col_offset is None or at.end_col_offset is None:
        return ""
    lines[-1] = lines[-1].encode()[: at.end_col_offset].decode(errors="replace")
    lines[0] = lines[0].encode()[at.col_offset :].decode(errors="replace")
    return "".join("".join(lines).split())


@functools.lru_cache(maxsize=1024)
def _ahead_of(code: CodeType, lasti: int) -> frozenset[int]:
    """The offsets of `code` that can follow `lasti` without a way back."""
    ahead, _ = _steps(code)
    seen: set[int] = set()
    todo = list(ahead[_at(code, lasti)])
    while todo:
        offset = todo.pop()
        if offset not in seen:
            seen.add(offset)
            todo += ahead[offset]
    return frozenset(seen)


def still_ahead(now: Call, other: Call) -> bool:
    """Whether `other`'s place lies ahead of `now`'s in the same function."""
    return (
        now.code is not None and now.code is other.code
        and _at(now.code, other.lasti) in _ahead_of(now.code, now.lasti)
    )


def _will_write(now: Call, other: Call) -> bool:
    """Whether a call that is written like `other` lies ahead of `now`'s place."""
    text = written(other)
    if now.code is None or not text:
        return False
    own = _steps(now.code)[1]
    return any(own.get(at) == text for at in _ahead_of(now.code, now.lasti))


def exchanged(one: Call, other: Call) -> bool:
    """Rule 1: each of the two ranks has still to make the call that the other makes now."""
    if (one.code, one.lasti) == (other.code, other.lasti):
        return False
    if still_ahead(one, other) or still_ahead(other, one):
        return False  # one of them has skipped something, or both make both
    return _will_write(one, other) and _will_write(other, one)


def skipped(one: Call, other: Call) -> Call | None:
    """Rule 2: the call, of the two, that the other's rank has left out; None if neither has."""
    if (one.code, one.lasti) == (other.code, other.lasti):
        return None
    if one.code is None or one.code is not other.code:
        return None
    for now, later in ((one, other), (other, one)):
        if _must_pass(now, later, rounds=True) and not _must_pass(later, now, rounds=True):
            return now
    if still_ahead(one, other) == still_ahead(other, one):
        return None
    now, later = (one, other) if still_ahead(one, other) else (other, one)
    return now if _must_pass(now, later, rounds=False) else None


def _must_pass(now: Call, later: Call, *, rounds: bool) -> bool:
    """Whether every way on from `now` comes to `later`. rounds: ways back are followed, and `now` is not
    come by again after `later`; else each of them is an end."""
    assert now.code is not None
    ahead, _ = _steps(now.code)
    back, ends = _back(now.code)
    goal, start = _at(now.code, later.lasti), _at(now.code, now.lasti)

    def reached(begin: int, stop: int) -> set[int]:
        seen = {stop}
        todo = [*ahead[begin], *(back.get(begin, ()) if rounds else ())]
        while todo:
            offset = todo.pop()
            if offset not in seen:
                seen.add(offset)
                todo += [*ahead[offset], *(back.get(offset, ()) if rounds else ())]
        return seen - {stop}

    over = reached(start, goal)
    if over & ends or (not rounds and over & set(back)):
        return False
    return not rounds or start not in reached(goal, -1)


@functools.lru_cache(maxsize=256)
def _back(code: CodeType) -> tuple[dict[int, list[int]], frozenset[int]]:
    """By offset, where an instruction leads back to; and the offsets at which the function returns."""
    steps = list(dis.get_instructions(code))
    back = {
        one.offset: [one.argval] for one in steps
        if isinstance(one.argval, int) and "JUMP" in one.opname and one.argval < one.offset
    }
    return back, frozenset(one.offset for one in steps if one.opname.startswith("RETURN_"))
