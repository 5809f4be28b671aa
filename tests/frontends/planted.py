"""Programs of users for tests: correct ones, and ones with a planted defect and its cure in comments.

The first lines say for how many ranks a program is (`# ranks: 2..4`) and of which kinds of finding one is
due (`# expects: a or b`); `# cured:` lines say what would be right instead of the line after them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

CURED = re.compile(r"^( *)# cured: ?(.*)$")


class Program(NamedTuple):
    """A program and what its first lines say. expects: kinds of findings of which one is due."""

    path: Path
    text: str
    ranks: tuple[int, ...]
    expects: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def cured(self) -> str:
        """The text without its defect: the line after `# cured:` lines gives way to what they say."""
        kept: list[str] = []
        right: list[str] = []
        for line in self.text.splitlines():
            found = CURED.match(line)
            if found:
                right.append((found[1] + found[2]).rstrip())
            elif right:
                kept += [one for one in right if one]
                right = []
            else:
                kept.append(line)
        return "\n".join([*kept, ""])


def programs_in(folder: Path) -> list[Program]:
    """Those of a folder, by name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        text = path.read_text()
        first, _, last = re.match(r"# ranks: (\d+)(\.\.(\d+))?\n", text).groups()
        expects = re.search(r"^# expects: (.*)$", text, re.MULTILINE)
        found.append(
            Program(
                path,
                text,
                tuple(range(int(first), int(last or first) + 1)),
                tuple(expects[1].split(" or ")) if expects else (),
            )
        )
    return found
