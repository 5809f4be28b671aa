"""Where text goes: answers to stdout, complaints to stderr; with --json one object alone."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from harness.report.text import WIDTH, WIDTH_MIN


def width() -> int:
    """Columns to fill: the terminal's (or COLUMNS), at most 80."""
    return max(min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH), WIDTH_MIN)


def complain(text: str, prefix: str = "rankfault: ") -> None:
    """One line (or a traceback) to stderr."""
    sys.stderr.write(f"{prefix}{text.rstrip()}\n")
    sys.stderr.flush()


class Output:
    """One command's output. With `json`, human text goes to stderr and `give` writes the object."""

    def __init__(self, *, json: bool = False) -> None:
        self.json = json

    def say(self, text: str = "") -> None:
        """A line or several for a human."""
        stream = sys.stderr if self.json else sys.stdout
        stream.write(text + "\n")
        stream.flush()

    def give(self, data: Any) -> None:
        """The JSON object, or list of objects, on stdout; only with `json`."""
        if self.json:
            text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
            sys.stdout.write(text + "\n")
            sys.stdout.flush()


def table(rows: Iterable[tuple[str, str]], columns: int) -> list[str]:
    """Two columns: names, and text wrapped beside them (or below, where it is narrow)."""
    import textwrap

    found = list(rows)
    room = max((len(name) for name, _ in found), default=0) + 2
    if room > columns // 2:
        room = 4
    lines = []
    for name, text in found:
        wrapped = textwrap.wrap(text, columns - room, break_on_hyphens=False) or [""]
        if len(name) + 2 > room:
            lines.append(name)
            lines += [" " * room + part for part in wrapped if part]
        else:
            lines.append((name.ljust(room) + wrapped[0]).rstrip())
            lines += [" " * room + part for part in wrapped[1:]]
    return lines
