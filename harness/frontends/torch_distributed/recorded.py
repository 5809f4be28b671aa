"""Calls of torch.distributed on their way from a rank's real process to the harness.

A rank appends one line a call to a file that outlives it, before the call is made: whatever ends the
rank, its last call is known. Lines are JSON, strict, without code. The user's place travels as file,
function and line; what is read back has a stand-in for the code object that has those three and nothing
else.

Modelled: everything in a Call. Not modelled: when a call returned.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from types import CodeType
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.frontends.torch_distributed.calls import Call

LASTI = 2  # of the first instruction that has a line


class Fired(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fired"):
    """A fault, by its position, changed the rank's call number `call` (-1: before the first)."""

    index: int
    call: int = -1


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="call"):
    call: Call


@functools.cache
def place(path: str, function: str, line: int) -> CodeType:
    """A code object that stands for another process's: it has its file, function and line."""
    return compile("pass", path, "exec").replace(
        co_name=function.rpartition(".")[2], co_qualname=function, co_firstlineno=line
    )


def stand_in(code: CodeType | None, lasti: int) -> tuple[CodeType | None, int]:
    """The stand-in for an instruction of a real code object, and the position in it that has its line."""
    if code is None:
        return None, -1
    line = next((n for start, end, n in code.co_lines() if n and start <= lasti < end), None)
    return place(code.co_filename, code.co_qualname, line or code.co_firstlineno), LASTI


def _told(value: Any) -> Any:
    if isinstance(value, CodeType):
        return [value.co_filename, value.co_qualname, value.co_firstlineno]
    raise NotImplementedError


def _read(kind: type, value: Any) -> Any:
    if kind is CodeType:
        return place(*msgspec.convert(value, tuple[str, str, int]))
    raise NotImplementedError


_encoder = msgspec.json.Encoder(enc_hook=_told)
_decoder = msgspec.json.Decoder(_Line | Fired, dec_hook=_read)


def append(fd: int, entry: Call | Fired) -> None:
    """Add one line to the file, whole: a rank that is killed leaves all that it had begun."""
    os.write(fd, _encoder.encode(_Line(entry) if isinstance(entry, Call) else entry) + b"\n")


def lines(data: bytes) -> Iterable[Call | Fired]:
    """What a rank has appended, in order; a last line that was cut off is left out. Raises UsageError."""
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise UsageError(f"a rank's record of calls, line {number}: {error}") from None
        yield entry.call if isinstance(entry, _Line) else entry
