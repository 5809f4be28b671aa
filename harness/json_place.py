"""Where a field stands in a JSON text: for errors that name file, line and field.

Decoders say which field is wrong (`$.plan.ranks`), not on which line. The text has been parsed
before, so it is well formed. Not modelled: a key that stands twice (the last one counts).
"""

from __future__ import annotations

import contextlib
import json
import re


def located(text: str, where: str, message: str, base: str) -> str:
    """`message` of a decoder with file, line and full field in front."""
    steps = re.findall(r"\$((?:\.\w+|\[\d+\])*)", message)
    path = base + "".join(steps)
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown:
        path += f".{unknown[1]}"
    said = re.sub(r"( - at )?`?\$[.\w\[\]]*`?:? ?", "", message).strip(": ")
    return f"{where}:{line_of(text, path)}: {path}: {said}"


def line_of(text: str, path: str) -> int:
    """The line of the field `path`, such as `$.plan.faults[0].rank`, or of the nearest above."""
    found: dict[str, int] = {}
    decoder = json.JSONDecoder()

    def blank(at: int) -> int:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        return at

    def walk(at: int, here: str) -> int:
        at = blank(at)
        found.setdefault(here, at)
        if text[at] not in "{[":
            return decoder.raw_decode(text, at)[1]
        closing = "}" if text[at] == "{" else "]"
        inside = text[at] == "{"
        at = blank(at + 1)
        index = 0
        while text[at] != closing:
            child = f"{here}[{index}]"
            if inside:
                key, end = decoder.raw_decode(text, at)
                child = f"{here}.{key}"
                found[child] = at
                at = blank(end) + 1
            at = blank(walk(at, child))
            if text[at] == ",":
                at = blank(at + 1)
            index += 1
        return at + 1

    with contextlib.suppress(ValueError, IndexError, RecursionError):
        walk(0, "$")
    while path not in found and path != "$":
        path = path[: max(path.rfind("."), path.rfind("["), 1)]
    return text.count("\n", 0, found.get(path, 0)) + 1
