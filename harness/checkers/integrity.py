"""Whether every rank's result is what the plain-torch reference says, and no write left its
window.

Results of ranks that never returned are not judged. One finding a run, about the first wrong rank;
the others are evidence. The kind says as much as the record proves: private copies, a wrong shape,
unwritten memory (poison in the result, or read for it), a stale value (see reads.py and sums.py),
else a wrong value. Why it came so is looked for in causes.py and elsewhere.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.causes import cause_of
from harness.checkers.elsewhere import Stray, last_store, misread, place_of, stray, unstored
from harness.checkers.reads import Proof, Reads
from harness.checkers.results import Wrong, wrong_results
from harness.checkers.sums import due, first_blank, poisoned, spread, summed
from harness.checkers.unread import unread
from harness.checkers.wording import actor, finding, unreturned
from harness.finding import Finding
from harness.record import CHANGES, Run, WindowRecord

_WRONG_SHOWN = 8


class Integrity:
    """Kinds: guard_overwritten, stale_private_memory, wrong_shape, unwritten_memory, stale_value,
    wrong_value."""

    name = "integrity"

    def __init__(self, *, usual: bool = False) -> None:
        """usual: what is expected are the results of the default run of the same plan."""
        self._usual = usual

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding on guards and one on results."""
        if not run.guards_intact:
            yield self._guard(run, next(known for known in run.names if known.guards_broken))
        if run.expected is None or any(failure.lane < 0 for failure in run.failures):
            return
        absent = () if run.ended == "returned" and None not in run.results else unreturned(run)
        wrong = wrong_results(run.observed, run.expected, run.ranks, absent, run.tolerance)
        if wrong:
            yield self._results(run, wrong)

    def _results(self, run: Run, wrong: list[Wrong]) -> Finding:
        first = _origin(run, wrong)
        others = [entry for entry in wrong if entry is not first]
        more = [str(entry) for entry in others[: _WRONG_SHOWN - 1]]
        if len(wrong) > _WRONG_SHOWN:
            more.append(f"… and {len(wrong) - _WRONG_SHOWN} more wrong results")
        if run.private:
            names = ", ".join(repr(name) for name in run.private)
            plural = "s" if len(run.private) > 1 else ""
            return finding(
                self.name, "stale_private_memory", first.rank,
                f"{first}; every rank had a private copy of host tensor{plural} {names}",
                evidence=more,
            )
        if first.index < 0:
            return finding(self.name, "wrong_shape", first.rank, str(first), evidence=more)
        if first.rank < 0 or not first.given_bytes:
            kind = "unwritten_memory" if first.poison else "wrong_value"
            because = "order" if self._usual and not any(run.fired) else ""
            return finding(self.name, kind, first.rank, str(first), evidence=more, because=because)
        return self._explained(run, first, more)

    def _explained(self, run: Run, first: Wrong, more: list[str]) -> Finding:
        """The finding about one element, with what the record proves of it."""
        kind = "unwritten_memory" if first.poison else "wrong_value"
        place = place_of(run, first)
        stored = last_store(run, place) if place is not None else None
        if place is not None and stored is None:
            lines, marks = unstored(run, place, first.rank)
            return finding(
                self.name, kind, first.rank, f"{first}; its place was never written",
                evidence=[*lines, *more], events=marks, because="result_unwritten",
            )
        reads = Reads(run, first.rank)
        proof, found, value = _why(reads, first, stored[0] if stored else len(run.raw))
        lines, marks = unread(reads, first) if proof is None or found is not None else ([], [])
        if proof is None or lines:
            because = "order" if self._usual and not any(run.fired) else "unread" if lines else ""
            if stored is not None:
                lines.append(f"it was last written by {actor(run, stored[1])}, event {stored[0]}")
                marks.append(stored[0])
            return finding(
                self.name, kind, first.rank, str(first), evidence=[*lines, *more], events=marks,
                because=because,
            )
        marks = proof.marks()
        if found is not None:
            known = run.names[proof.read.window]
            dtype = str(first.dtype)[6:]
            where = (known.number, proof.read.peer, proof.lo)
            lines = [proof.what(run), found.line(run, value, dtype, where)]
            because = "elsewhere"
            marks += [found.at, reads.issued.get(found.event.number, found.at)]
        else:
            because, why, more_marks = cause_of(run, proof)
            lines = [*proof.lines(run), *why]
            marks += more_marks
        if proof.write is not None:
            kind = "wrong_value" if proof.late else "stale_value"
        if proof.unwritten or first.poison:
            kind = "unwritten_memory"
        sites = [run.site(proof.read)] if proof.unwritten or proof.write is not None else []
        if proof.late and proof.write is not None:
            sites.append(run.site(proof.write))
        when = f", {proof.when(run)}" if proof.unwritten or proof.write is not None else ""
        return finding(
            self.name, kind, first.rank, f"{first}; read by {actor(run, proof.read)}{when}",
            sites=sites, evidence=[*lines, *more], events=marks, because=because,
        )

    def _guard(self, run: Run, known: WindowRecord) -> Finding:
        rank, offset = known.guards_broken[0]
        side = "before its first" if offset < 0 else "behind its last"
        memory = f"{known.kind} {known.name!r} of rank {rank}"
        what = f"a write left {memory} at byte {offset}, {side} byte"
        for index, event in enumerate(run.events):
            outside = event.lo < 0 or event.hi > known.nbytes
            mine = event.window == known.number and event.peer == rank
            if event.kind in CHANGES and mine and outside:
                writer = run.rank_of(event)
                return finding(
                    self.name, "guard_overwritten", writer, f"{actor(run, event)}: {what}",
                    sites=(run.site(event),),
                    evidence=(
                        f"it wrote bytes {event.lo}..{event.hi} at event {index}; the memory has "
                        f"{known.nbytes} bytes",
                    ),
                    events=(index,),
                )
        return finding(self.name, "guard_overwritten", rank, what)


def _origin(run: Run, wrong: list[Wrong]) -> Wrong:
    """The first wrong result; of NaNs that spread from rank to rank, the first one whose rank itself
    read unwritten memory; of one wrong sum at several ranks, that of the rank that left a peer out."""
    first = wrong[0]
    if run.private or first.rank < 0:
        return first
    if not first.poison:
        same = (first.index, first.given_bytes, first.expected_bytes)
        alike = [one for one in wrong if (one.index, one.given_bytes, one.expected_bytes) == same]
        return next((one for one in alike[:_WRONG_SHOWN] if _left_out(run, one)), first)
    for entry in wrong[:_WRONG_SHOWN]:
        place = place_of(run, entry)
        stored = last_store(run, place) if place is not None else None
        if not entry.poison or (place is not None and stored is None):
            continue
        reads = Reads(run, entry.rank)
        proof, _, _ = _why(reads, entry, stored[0] if stored else len(run.raw))
        if proof is not None and proof.unwritten:
            return entry
    return first


def _left_out(run: Run, wrong: Wrong) -> bool:
    if not wrong.given_bytes:
        return False
    place, reads = place_of(run, wrong), Reads(run, wrong.rank)
    stored = last_store(run, place) if place is not None else None
    reads.end = stored[0] if stored else len(run.raw)
    return bool(unread(reads, wrong)[0])


def _why(
    reads: Reads, wrong: Wrong, stored_at: int
) -> tuple[Proof | None, Stray | None, bytes]:
    """The read behind a wrong result, as far as the record proves one; where the value that was due
    went instead, and that value."""
    for end in reads.ends(wrong, stored_at):
        reads.end = end
        proof = reads.copied(wrong) or (poisoned if wrong.poison else summed)(reads, wrong)
        if proof is not None:
            return proof, None, b""
        if wrong.poison:
            for blank, value in due(reads, wrong):
                found = stray(reads, blank, value)
                if found is not None:
                    return blank, found, value
            proof = spread(reads, wrong) or first_blank(reads, wrong)
            if proof is not None:
                return proof, None, b""
        misplaced = misread(reads, wrong)
        if misplaced is not None:
            return *misplaced, wrong.expected_bytes
    return None, None, b""
