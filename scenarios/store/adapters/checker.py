"""The checker `store` of black-box runs: what each block may be, call by call.

A hit holds the bytes of a dump of that block, whole. A block that was stored (dumped without an error,
and committed where that is needed) hits until something outside the store happens to it; what a kill, a
restart or a power cut may take is the adapter's to say. A block that
nobody dumped, or committed, misses. An error is right for what is missing, damaged or failed before, and
for a call in a form that a store may refuse (a block twice in one batch, an empty list).
An exception that only a slip of the program raises (KeyError, AttributeError, …) is never right.
While there is a shortage (a full disk, too few descriptors) every error is right; a hit is still whole.

The first wrong answer is the finding, the others are its consequences. Not modelled: orders of calls that
overlap (a workload waits for all of them before it asks anything that depends on them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from harness import Finding, Run, Site, likely
from scenarios.store.adapters.bench import POISON
from scenarios.store.adapters.history import MISSING, History, Status, Step, block_id
from scenarios.store.patterns import Pattern, cause_of, pattern

MORE_MAX = 6
ACCIDENTS = frozenset(
    ("AssertionError", "AttributeError", "IndexError", "KeyError", "NameError", "TypeError",
     "UnboundLocalError", "ZeroDivisionError")
)
FILLED = "the poison of the destination"


@dataclass(slots=True)
class _Block:
    """What is known of a block. versions: that a hit may hold. stored: a miss is wrong. visible: others
    than `dumped_by` may see it."""

    versions: list[int] = field(default_factory=list)
    dumped: set[int] = field(default_factory=set)  # by which clients, without an error
    stored: bool = False
    visible: bool = False


@dataclass(frozen=True, slots=True)
class _Wrong:
    """kind: of the finding. text: after "client 0's load of block 1: "."""

    step: Step
    kind: str
    block: int
    text: str
    evidence: tuple[str, ...] = ()
    because: str = ""

    def __str__(self) -> str:
        of = "" if self.block < 0 else " of " + named(self.block)
        return f"client {self.step.client}'s {self.step.operation}{of}: {self.text}"


class StoreChecker:
    """Kinds: silent_corruption, lost_block, phantom_block, uncommitted_visible, unexpected_error, hang,
    crash, misuse."""

    name = "store"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding."""
        if not isinstance(run.observed, History):
            return
        wrong = list(_Judge(run.observed).wrong())
        if not wrong:
            return
        first = wrong[0]
        kind, step = first.kind, first.step
        cause, remedy = likely(f"{self.name}/{kind}", first.because)
        steps = run.observed.steps
        told = [f"call {number}: {one}" for number, one in enumerate(steps[: steps.index(step) + 1])]
        yield Finding(
            checker=self.name, kind=kind, rank=0, message=str(first), cause=cause, remedy=remedy,
            sites=(Site(run.observed.adapter.__name__, step.operation), *_outside(steps, step)),
            evidence=(*first.evidence, *told),
            consequences=tuple(f"after it: {one}" for one in wrong[1 : 1 + MORE_MAX]),
        )


def _outside(steps: Sequence[Step], end: Step) -> Iterator[Site]:
    """What had last happened outside the store: it is a part of what was found."""
    for step in reversed(steps[: steps.index(end)]):
        if step.client < 0:
            yield Site("outside", step.operation.partition(":")[0])
            return


def named(block: int) -> str:
    """A block as findings call it."""
    number = f"missing block {block - MISSING}" if block >= MISSING else f"block {block}"
    return f"{number} ({block_id(block).hex()[:8]}…)"


class _Judge:
    """Goes through a history with what is known of every block."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.promises = history.adapter
        self.blocks: dict[int, _Block] = {}
        self.damaged = False
        self.short = False  # of room or descriptors, or not yet opened anew after that
        self.relieved = False

    def wrong(self) -> Iterator[_Wrong]:
        """Every wrong answer, in order."""
        for step in self.history.steps:
            if step.operation == "open":
                self.short = self.short and not self.relieved
            for status in step.statuses:
                if status.kind in ("timeout", "crash", "misuse"):
                    kind = "hang" if status.kind == "timeout" else status.kind
                    yield _Wrong(step, kind, -1, status.text)
                elif status.kind == "error" and status.text.partition(":")[0] in ACCIDENTS:
                    yield _Wrong(step, "unexpected_error", -1, f"{status.text}; no error that it means")
                elif status.kind == "error" and not (step.blocks or self.damaged or self.short):
                    yield _Wrong(step, "unexpected_error", -1, status.text)
            if step.operation == "dump":
                yield from self._dump(step)
            elif step.operation == "commit":
                yield from self._commit(step)
            elif step.operation in ("lookup", "load"):
                yield from self._asked(step)
            elif step.operation == "kill":
                if not self.promises.survives_kill:
                    self._doubt()
            elif step.operation == "power cut":
                if self.promises.survives_power_cut != "kept":
                    self._doubt()
            elif step.operation.startswith("shortage") or step.operation == "relief":
                self.short = step.operation != "relief" or not self.promises.survives_shortage
                self.relieved = step.operation == "relief"
            elif step.operation not in ("open", "close"):
                self.damaged = True
                self._doubt()

    def _doubt(self) -> None:
        """Nothing needs to be there any more."""
        for block in self.blocks.values():
            block.stored = False

    def _known(self, block: int) -> _Block:
        return self.blocks.setdefault(block, _Block())

    def _refusable(self, step: Step) -> bool:
        """Whether a store may refuse this call as a whole."""
        twice = len(set(step.blocks)) < len(step.blocks)
        absent = any(not self._known(block).stored for block in step.blocks)
        return twice or self.damaged or self.short or (step.operation == "load" and absent)

    def _dump(self, step: Step) -> Iterator[_Wrong]:
        refusable = self._refusable(step)
        for index, block in enumerate(step.blocks):
            status, known = step.of(index), self._known(block)
            rewritten = bool(known.versions) and step.version not in known.versions
            known.visible = known.visible or not self.promises.commits
            if step.version not in known.versions:
                known.versions.append(step.version)
            if status.kind == "ok":
                known.dumped.add(step.client)
                known.stored = known.stored or not self.promises.commits
            elif status.kind == "error" and not (refusable or rewritten or self._is_refused(step, block)):
                yield _Wrong(step, "unexpected_error", block, status.text)

    def _is_refused(self, step: Step, block: int) -> bool:
        """Whether the store may refuse this dump because of another one of the block."""
        return self.promises.refuses_duplicates and any(
            other is not step and other.operation == "dump" and block in other.blocks
            for other in self.history.steps
        )

    def _commit(self, step: Step) -> Iterator[_Wrong]:
        for block in step.blocks:
            known, status = self._known(block), step.of(0)
            known.visible = True
            if status.kind == "ok" and step.client in known.dumped:
                known.stored = True
            elif status.kind == "error" and step.client in known.dumped and not self._refusable(step):
                yield _Wrong(step, "unexpected_error", block, status.text)

    def _asked(self, step: Step) -> Iterator[_Wrong]:
        refusable, missed = self._refusable(step), False
        whole = len(step.statuses) != len(step.blocks)
        for index, block in enumerate(step.blocks):
            status, known = step.of(index), self._known(block)
            blind = missed and step.operation == "lookup" and self.promises.lookup_stops_at_a_miss
            if status.kind == "hit":
                yield from self._hit(step, block, known, status)
            elif status.kind == "miss":
                missed = True
                if known.stored and not blind:
                    yield _Wrong(step, "lost_block", block, "a miss, although it was stored", (
                        self._stored_by(block),))
            elif self.short and status.kind == "error":
                continue
            elif status.kind == "error" and known.stored and not (whole and refusable):
                yield _Wrong(step, "unexpected_error", block, status.text)

    def _stored_by(self, block: int) -> str:
        steps = self.history.steps
        number = next(
            n for n in range(len(steps) - 1, -1, -1)
            if steps[n].operation in ("dump", "commit") and block in steps[n].blocks
        )
        return f"it was stored by call {number}"

    def _hit(self, step: Step, block: int, known: _Block, status: Status) -> Iterator[_Wrong]:
        if not known.versions:
            yield _Wrong(step, "phantom_block", block, "a hit, although nobody dumped it")
        elif not known.visible and step.client not in known.dumped:
            yield _Wrong(step, "uncommitted_visible", block, "a hit, although it was never committed")
        elif step.operation == "load":
            rights = {version: self.history.data(block, version) for version in known.versions}
            if status.got not in rights.values():
                yield self._corrupt(step, block, max(rights), status)

    def _corrupt(self, step: Step, block: int, version: int, status: Status) -> _Wrong:
        right = self.history.data(block, version)
        others: dict[str, bytes] = {FILLED: bytes([POISON]) * len(right)}
        for number, one in self.blocks.items():
            for other in one.versions:
                if (number, other) != (block, version):
                    told = named(number) if other == 0 else f"{named(number)}, version {other}"
                    others[told] = self.history.data(number, other)
        found = pattern(right, status.got, others)
        assert found is not None
        return _Wrong(
            step, "silent_corruption", block, f"a hit with wrong bytes: {found.text}",
            tuple(_compared(found, right, status)), cause_of(found, poison=FILLED),
        )


def _compared(found: Pattern, right: bytes, status: Status) -> Iterator[str]:
    """The first wrong bytes side by side, and where source and destination lie."""
    first = found.first
    given, wanted = status.got[first : first + 8].hex(" "), right[first : first + 8].hex(" ")
    yield f"from byte {first} on: {given}; expected: {wanted}; {found.wrong} of {len(right)} bytes differ"
    yield f"pointer % 512: source {status.at[0]}, destination {status.at[1]}"
