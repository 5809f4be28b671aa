"""Linearizability: a long history of blocks that are written once, and porcupine's largest histories.

porcupine's documentation gives no times for its key-value histories (only how it compares with another
checker), so there is no peer to divide by: the processor's seconds stand as measured. They need the
folder shared/data/porcupine beside the repository; without it only the first figures are measured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import figure
from harness import ILLEGAL, NEVER, Op
from harness.ambient import generator
from harness.checkers.linear_search import search
from harness.checkers.linearizable import judge_history
from harness.checkers.linearizable import linearizable as judged

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "porcupine" / "kv"
OPERATIONS = 100_000
LINE = re.compile(r'{:process (\d+), :type :(\w+), :f :(\w+), :key "(.*)", :value (?:nil|"(.*)")}')


class Once:
    """A block that is written once: None, then its content."""

    def initial(self) -> None:
        """Nothing."""

    def step(self, state: Any, op: Op) -> Any:
        """A read returns what is there."""
        if op.kind == "write":
            return op.value
        return state if op.result == state else ILLEGAL

    def asks(self, op: Op) -> bool:
        """Reads."""
        return op.kind == "read"

    def register(self, op: Op) -> tuple[str, Any]:
        """As it is."""
        return op.kind, op.value if op.kind == "write" else op.result


class Text:
    """Get, put and append of a string."""

    def initial(self) -> str:
        """Empty."""
        return ""

    def step(self, state: Any, op: Op) -> Any:
        """As in the histories."""
        if op.kind == "put":
            return op.value
        if op.kind == "append":
            return state + op.value
        return state if op.result in (state, None) else ILLEGAL

    def asks(self, op: Op) -> bool:
        """Gets."""
        return op.kind == "get"

    def register(self, op: Op) -> None:
        """Values come back."""


def blocks(count: int, keys: int) -> Iterator[Op]:
    """A legal history of `count` operations on `keys` blocks by eight clients that overlap."""
    source = generator("linearizable", count, keys)
    for number in range(count):
        key = number % keys
        if number < keys:
            yield Op(0, key, "write", f"block {key}", "done", 100, 200)
            continue
        called = source.randrange(20 * count)
        seen = None if called < 150 else f"block {key}"
        yield Op(number % 8, key, "read", None, seen, called, max(called + source.randrange(16), 150))


def read(path: Path) -> list[Op]:
    """One of porcupine's key-value histories."""
    begun: dict[str, Op] = {}
    found = []
    for at, line in enumerate(path.read_text().splitlines()):
        match = LINE.match(line)
        assert match is not None, line
        client, how, kind, key, value = match.groups()
        if how == "invoke":
            begun[client] = Op(int(client), key, kind, value, None, at)
        else:
            found.append(begun.pop(client)._replace(returned=at, result=value))
    return [*found, *[op._replace(returned=NEVER) for op in begun.values()]]


def linearizable(*, full: bool) -> list[dict[str, Any]]:
    """Seconds of each history."""
    found = []
    for keys in (1, 100):
        ops = list(blocks(OPERATIONS, keys))
        started = time.process_time()
        assert not judge_history(ops, Once())
        seconds = round(time.process_time() - started, 2)
        name = f"write-once history, {OPERATIONS} operations, {keys} blocks"
        found.append(figure(name, seconds, "s", "< 5", seconds < 5))
    started = time.process_time()
    assert search(list(blocks(OPERATIONS, 1)), Once()).legal
    seconds = round(time.process_time() - started, 2)
    found.append(figure("the same, 1 block, by the search", seconds, "s", "", None))
    for name in ("c10-ok", "c10-bad", "c50-ok", "c50-bad") if DATA.is_dir() else ():
        ops = read(DATA / f"{name}.txt")
        times = []
        for _ in range(5 if full else 1):
            started = time.process_time()
            assert judged(ops, Text()) is name.endswith("ok")
            times.append(time.process_time() - started)
        found.append(
            figure(f"porcupine's {name}, {len(ops)} operations", round(min(times), 3), "s", "", None)
        )
    return found
