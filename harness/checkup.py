"""What a system offers to `rankfault bench NAME` and `rankfault doctor NAME CONFIG`.

The command line imports no system: it finds these values in the packages that the entry points name, as
it finds scenarios, and prints what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Check(NamedTuple):
    """One thing that was looked at: its verdict (ok, warn or fail), what was seen, and what to do."""

    name: str
    verdict: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Doctor:
    """`examine` takes a configuration and returns its checks; UsageError where it is none."""

    name: str
    examine: Callable[[Mapping[str, Any]], list[Check]]


@dataclass(frozen=True)
class Bench:
    """`measure(path=, pipeline=, direct=)` returns figures: objects name, value, unit, goal, met."""

    name: str
    measure: Callable[..., list[dict[str, Any]]]
