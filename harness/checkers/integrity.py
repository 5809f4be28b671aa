"""Whether every rank's result is what the plain-torch reference says, and no write left its
window.

Results of ranks that never returned are not judged. One finding a run, about the first wrong rank;
the others are evidence. The kind says as much as the record proves: private copies, a wrong shape,
unwritten memory (poison in the result, or read for it), a stale value (see reads.py), else a wrong
value.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.checkers.reads import Reads
from harness.checkers.results import Wrong, wrong_results
from harness.checkers.wording import actor, finding, unreturned
from harness.finding import Finding
from harness.record import Run, WindowRecord

_WRONG_SHOWN = 8
_WRITES = frozenset(("deliver", "store", "land"))


class Integrity:
    """Kinds: guard_overwritten, stale_private_memory, wrong_shape, unwritten_memory, stale_value,
    wrong_value."""

    name = "integrity"

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
        first = wrong[0]
        lines = [str(entry) for entry in wrong[:_WRONG_SHOWN]]
        if len(wrong) > _WRONG_SHOWN:
            lines.append(f"… and {len(wrong) - _WRONG_SHOWN} more wrong results")
        if run.private:
            names = ", ".join(repr(name) for name in run.private)
            return finding(
                self.name, "stale_private_memory", first.rank,
                f"{first}; every rank had a private copy of host tensor {names}", evidence=lines,
            )
        if first.index < 0:
            return finding(self.name, "wrong_shape", first.rank, str(first), evidence=lines)
        proof = Reads(run, first.rank).proof(first) if first.rank >= 0 else None
        if proof is None:
            kind = "unwritten_memory" if first.poison else "wrong_value"
            return finding(self.name, kind, first.rank, str(first), evidence=lines)
        kind = "wrong_value" if proof.late else "stale_value"
        if proof.unwritten or first.poison:
            kind = "unwritten_memory"
        sites = [run.site(proof.read)]
        if proof.late and proof.write is not None:
            sites.append(run.site(proof.write))
        return finding(
            self.name, kind, first.rank,
            f"{first}; read by {actor(run, proof.read)}, {proof.when(run)}",
            sites=sites, evidence=[*proof.lines(run), *lines], events=proof.marks(),
        )

    def _guard(self, run: Run, known: WindowRecord) -> Finding:
        rank, offset = known.guards_broken[0]
        side = "before its first" if offset < 0 else "behind its last"
        memory = f"{known.kind} {known.name!r} of rank {rank}"
        what = f"a write left {memory} at byte {offset}, {side} byte"
        for index, event in enumerate(run.events):
            outside = event.lo < 0 or event.hi > known.nbytes
            mine = event.window == known.number and event.peer == rank
            if event.kind in _WRITES and mine and outside:
                writer = run.lane_of(event)
                return finding(
                    self.name, "guard_overwritten", writer, f"{actor(run, event)}: {what}",
                    sites=(run.site(event),),
                    evidence=(
                        f"it wrote bytes {event.lo}..{event.hi} at event {index}; the memory has "
                        f"{known.nbytes}",
                    ),
                    events=(index,),
                )
        return finding(self.name, "guard_overwritten", rank, what)


