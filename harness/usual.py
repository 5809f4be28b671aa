"""What ranks come to whatever the schedule: the lines of their texts that a plan alone decides.

A program that prints how long something took, or the time of day, does not print the same twice. Such
lines are found by runs of one and the same plan that differ in them, and are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence


def reconciled(now: Sequence[str], runs: Sequence[Sequence[str]]) -> list[str]:
    """The texts of runs[0], one a rank, with what the other runs say differently taken from `now`.

    Line by line; a text whose number of lines differs between runs is taken from `now` as a whole.
    """
    return [_one(text, [run[rank] for run in runs]) for rank, text in enumerate(now)]


def _one(now: str, texts: Sequence[str]) -> str:
    first, *others = [text.split("\n") for text in texts]
    if any(len(other) != len(first) for other in others):
        return now
    lines = now.split("\n")
    return "\n".join(
        lines[n] if n < len(lines) and any(other[n] != line for other in others) else line
        for n, line in enumerate(first)
    )
