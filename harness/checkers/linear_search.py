"""Is there an order in which one object's operations could have happened one after another?

An operation lies somewhere between its call and its return; two with the same time may come in either
order. One that never returned may have happened at any time after its call, or never. `search` is the
search of Wing and Gong with Lowe's list of calls and returns: the first operations that may come next are
tried in turn, what was reached is remembered as (the set done, the state), and a return whose operation
is not done yet means a step back. What only asks, and rules nothing out, is done as soon as it is right
and never tried again: moving it to the front of an order cannot spoil the order. The set is kept as how
many of the first operations are done and a mask of the others, so that long histories stay cheap. It
ends after `limit` steps without a verdict.

Not modelled: weaker orders (sequential consistency, sessions). Sources: Wing and Gong 1993, Lowe 2017;
reference/algorithms.md section 7.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

LIMIT = 1_000_000  # steps
ILLEGAL = object()  # what a model's step returns for an operation that cannot come next
NEVER = float("inf")


class Op(NamedTuple):
    """One operation. key: the object that it works on. returned: NEVER for one that has no answer; its
    result is None then. text: for reports."""

    client: int
    key: Hashable
    kind: str
    value: Any = None
    result: Any = None
    called: float = 0
    returned: float = NEVER
    text: str = ""


class Model(Protocol):
    """The sequential meaning of one object. States are hashable values."""

    def initial(self) -> Hashable:
        """The state before every operation."""

    def step(self, state: Any, op: Op) -> Any:
        """The state after `op`, or ILLEGAL where its result cannot be; result None: anything may be."""

    def asks(self, op: Op) -> bool:
        """Whether `op` only asks: it leaves a state as it is, or, where a state is a set of
        possibilities, rules some of them out; without it the others have every order that they had."""

    def register(self, op: Op) -> tuple[str, Hashable] | None:
        """`op` as ("write" | "read", value) of a register whose written values are all different;
        None where it is no such operation."""


@dataclass(frozen=True, slots=True)
class Searched:
    """legal: None after too many steps. order: the longest beginning that was found, in its order."""

    legal: bool | None
    order: tuple[Op, ...]
    steps: int


class _List:
    """Calls and returns in order, from which operations are taken and put back in reverse.

    The numbers of calls are those of the operations, returns follow; the last number is the end.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        count = len(ops)
        times = [(op.called, 0, number) for number, op in enumerate(ops)]
        times += [(op.returned, 1, count + number) for number, op in enumerate(ops)
                  if op.returned != NEVER]
        self.count = count
        self.end = 2 * count
        order = [number for _, _, number in sorted(times)]
        self.next = [self.end] * (self.end + 1)
        self.previous = [self.end] * (self.end + 1)
        for before, after in zip((self.end, *order), (*order, self.end), strict=True):
            self.next[before] = after
            self.previous[after] = before
        self.returns = [op.returned != NEVER for op in ops]

    def take(self, number: int) -> None:
        """An operation is done."""
        for one in (number, number + self.count) if self.returns[number] else (number,):
            before, after = self.previous[one], self.next[one]
            self.next[before] = after
            self.previous[after] = before

    def put_back(self, number: int) -> None:
        """It is not, after all."""
        for one in (number + self.count, number) if self.returns[number] else (number,):
            self.next[self.previous[one]] = one
            self.previous[self.next[one]] = one


def search(ops: Sequence[Op], model: Model, limit: int = LIMIT) -> Searched:
    """The verdict on the operations of one object."""
    return _Search(ops, model, limit).run()


class _Search:
    """One search: what is done, in order, and what is left."""

    def __init__(self, ops: Sequence[Op], model: Model, limit: int) -> None:
        told = [op for op in ops if op.returned != NEVER or not model.asks(op)]
        self.ops = sorted(told, key=lambda op: (op.called, op.returned))
        self.asks = [model.asks(op) for op in self.ops]
        self.step = model.step
        self.limit = limit
        self.steps = 0
        self.chain = _List(self.ops)
        self.left = sum(self.chain.returns)
        self.state: Any = model.initial()
        # Operations below `first` are done, and from there on those in the mask.
        self.first, self.mask = 0, 0
        self.done: list[tuple[int, int, int, Any]] = []
        self.settled: list[bool] = []  # of those done: it was right to do it, whatever follows
        self.longest: list[int] = []
        self.at = 0  # the change that was undone last

    def run(self) -> Searched:
        """Until there is a verdict."""
        chain = self.chain
        seen = {(self.first, self.mask, self.state)}
        self._settle()
        at = chain.next[chain.end]
        while self.left:
            self.steps += 1
            if self.steps > self.limit:
                return self._verdict(self.longest, legal=None)
            if at >= chain.count:  # a return, or the end: back to the last choice
                if not self._back():
                    return self._verdict(self.longest, legal=False)
                at = chain.next[self.at]
                continue
            after = self.step(self.state, self.ops[at])
            reached = (*_with(self.first, self.mask, at), after)
            if after is ILLEGAL or reached in seen:
                at = chain.next[at]
                continue
            seen.add(reached)
            self._take(at, reached)
            self._settle()
            at = chain.next[chain.end]
        return self._verdict([number for number, *_ in self.done], legal=True)

    def _take(self, number: int, reached: tuple[int, int, Any]) -> None:
        self.done.append((number, self.first, self.mask, self.state))
        self.settled.append(self.asks[number] and reached[2] == self.state)
        self.first, self.mask, self.state = reached
        self.left -= self.chain.returns[number]
        self.chain.take(number)

    def _settle(self) -> None:
        """Do all that may come now, is right and changes nothing: later it could not be righter."""
        chain = self.chain
        at = chain.next[chain.end]
        while at < chain.count:
            following = chain.next[at]
            if self.asks[at] and self.step(self.state, self.ops[at]) == self.state:
                self.steps += 1
                self._take(at, (*_with(self.first, self.mask, at), self.state))
                if following == at + chain.count:  # its own return: what follows may come now, too
                    following = chain.next[chain.end]
            at = following

    def _back(self) -> bool:
        """Undo the last choice, and what was settled after it; False where there is none."""
        if len(self.done) > len(self.longest):
            self.longest = [number for number, *_ in self.done]
        while self.done:
            self.at, self.first, self.mask, self.state = self.done.pop()
            self.chain.put_back(self.at)
            self.left += self.chain.returns[self.at]
            if not self.settled.pop():
                return True
        return False

    def _verdict(self, order: Sequence[int], *, legal: bool | None) -> Searched:
        return Searched(legal, tuple([self.ops[number] for number in order]), self.steps)


def _with(first: int, mask: int, number: int) -> tuple[int, int]:
    """The set with one operation more."""
    mask |= 1 << (number - first)
    ones = ((mask + 1) & ~mask).bit_length() - 1  # at its low end
    return first + ones, mask >> ones


__all__ = ["ILLEGAL", "LIMIT", "NEVER", "Model", "Op", "Searched", "search"]
