"""The checker `linearizable`: what clients saw of each object could have happened in one order.

A scenario gives it a function from a run to its operations, and a model of one object. Objects are judged
apart (a history is linearizable exactly if each object's is). A finding holds the smallest sub-history
found that has no order: answers that are not needed are left out, changes that are not needed may have
happened at any time after their call or never, so what is left contradicts itself whatever the others
did. An object whose search is too long makes the run UNKNOWN and not a finding.

Kinds: not_linearizable. Not modelled: operations on several objects at once (a prefix lookup is one
operation an object). Source: reference/algorithms.md section 7.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from harness.checkers.linear_registers import register_verdict
from harness.checkers.linear_search import LIMIT, NEVER, Model, Op, search
from harness.diagnosis.table import likely
from harness.errors import Undecided
from harness.finding import Finding
from harness.record import Run

TRIES = 200  # searches that look for a smaller witness
TRY_STEPS = 5_000  # of each of them; one that ends without a verdict has not shown anything
ROUNDS = (100, 10, 1)  # parts of the limit after which `linearizable` goes on with another object
SHOWN = 12


class Judged(NamedTuple):
    """legal: None without a verdict. witness: operations that contradict each other. order: the longest
    beginning of an order that was found."""

    legal: bool | None
    witness: tuple[Op, ...] = ()
    order: tuple[Op, ...] = ()


def judge_history(
    ops: Iterable[Op], model: Model, limit: int = LIMIT, *, smallest: bool = True
) -> dict[Hashable, Judged]:
    """The verdict on each object that is not linearizable, or has none; {} where all are.

    smallest: look for a small witness.
    """
    by_key: dict[Hashable, list[Op]] = {}
    for op in ops:
        by_key.setdefault(op.key, []).append(op)
    found = {}
    for key, mine in by_key.items():
        judged = judge_object(mine, model, limit, smallest=smallest)
        if not judged.legal:
            found[key] = judged
    return found


def linearizable(ops: Iterable[Op], model: Model, limit: int = LIMIT) -> bool | None:
    """Whether all objects are; None without a verdict. Ends with the first that is not, and looks at all
    for a short while before it looks at any for long."""
    left: dict[Hashable, list[Op]] = {}
    for op in ops:
        left.setdefault(op.key, []).append(op)
    for part in ROUNDS:
        for key, mine in list(left.items()):
            legal = judge_object(mine, model, limit // part, smallest=False).legal
            if legal is False:
                return False
            if legal:
                del left[key]
    return None if left else True


def judge_object(
    ops: Sequence[Op], model: Model, limit: int = LIMIT, *, smallest: bool = True
) -> Judged:
    """The verdict on one object's operations."""
    told = register_verdict(ops, model, model.initial())
    if told is not None:
        return Judged(not told, told)
    searched = search(ops, model, limit)
    if searched.legal is not False:
        return Judged(searched.legal, (), searched.order)
    witness = tuple(_smallest(list(ops), model)) if smallest else tuple(ops)
    return Judged(legal=False, witness=witness, order=searched.order)


def _smallest(ops: list[Op], model: Model) -> list[Op]:
    """Few operations whose answers have no order, whatever the others did: halves, then singles."""
    needed = list(range(len(ops)))
    size = len(needed)
    tries = 0
    while size:
        start = 0
        while start < len(needed) and tries < TRIES:
            fewer = needed[:start] + needed[start + size :]
            tries += 1
            if search(_only(ops, set(fewer), model), model, TRY_STEPS).legal is False:
                needed = fewer
            else:
                start += size
        size //= 2
    return [ops[index] for index in needed]


def _only(ops: list[Op], needed: set[int], model: Model) -> list[Op]:
    """The history in which only some operations say anything."""
    return [
        op if index in needed else op._replace(returned=NEVER, result=None)
        for index, op in enumerate(ops) if index in needed or not model.asks(op)
    ]


class Linearizable:
    """history: a run's operations; None where it has none to judge. limit: steps of one search."""

    name = "linearizable"

    def __init__(
        self, history: Callable[[Run], Iterable[Op] | None], model: Model, limit: int = LIMIT
    ) -> None:
        self._history = history
        self._model = model
        self._limit = limit

    def check(self, run: Run) -> Iterable[Finding]:
        """A finding an object; raises Undecided at the end where one has no verdict."""
        ops = self._history(run)
        undecided = []
        for key, judged in judge_history(ops or (), self._model, self._limit).items():
            if judged.legal is None:
                undecided.append(str(key))
                continue
            witness = sorted(judged.witness, key=lambda op: (op.called, op.returned))
            cause, remedy = likely("linearizable/not_linearizable")
            yield Finding(
                checker=self.name, kind="not_linearizable", rank=witness[0].client,
                message=f"no order of what clients saw of {key} is possible: "
                f"{len(witness)} operations contradict each other",
                evidence=tuple([_shown(op) for op in witness[:SHOWN]]), cause=cause, remedy=remedy,
                consequences=_longest(judged.order),
            )
        if undecided:
            raise Undecided(f"{', '.join(undecided)}: no verdict within {self._limit:,} steps")


def _longest(order: Sequence[Op]) -> tuple[str, ...]:
    """How far an order came, and the last that it had."""
    if not order:
        return ()
    last = "; ".join(_shown(op) for op in order[-3:])
    return (f"the longest order found has {len(order)} operations and ends with {last}",)


def _shown(op: Op) -> str:
    until = "never returned" if op.returned == NEVER else f"to {op.returned:g}"
    what = op.text or f"{op.kind} {'' if op.value is None else op.value} -> {op.result}"
    return f"client {op.client}, events {op.called:g} {until}: {what}"


__all__ = ["Judged", "Linearizable", "judge_history", "judge_object", "linearizable"]
