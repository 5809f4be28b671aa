"""What a pld program's own check says of the outputs of one of its host calls.

The main (or test) that made the call compares the outputs with its golden values; outputs as in the
default run are as right as they were there, others are given to it again. Where it would accept anything,
an output that differs from the default run's is the finding. Of a call that no main has made (on other
devices, in other sizes) only that can be told: its default run may be the wrong one.

Runs of other scenarios have no such program, and nothing is found in them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from msgspec import structs

from harness.checkers.integrity import Integrity
from harness.checkers.wording import finding
from harness.errors import Refused, one_line
from harness.finding import Finding
from harness.record import Run, place, site_of

if TYPE_CHECKING:
    from harness.frontends.pypto.programs import Program, Raised


class Seen(dict[str, list[Any]]):
    """What a host call left, `{name: [one value a rank]}`, and whose call it was.

    program: None where nobody checks the outputs. number: which of its calls. outputs: the tensors.
    expected: those of the default run, or None. refused: what the program's own checks said of
    arguments that its main never gave; then nothing has run.
    """

    program: Program | None = None
    number: int = 0
    outputs: list[torch.Tensor]
    expected: dict[str, list[Any]] | None = None
    usual: list[torch.Tensor] | None = None
    refused: str = ""


class Golden:
    """Kinds: check_failed, depends_on_schedule; and integrity's, which says where a wrong value came
    from."""

    name = "golden"

    def check(self, run: Run) -> Iterable[Finding]:
        """The program's word on the outputs of a run that ended well."""
        seen = run.observed
        if isinstance(seen, Seen) and seen.refused:
            raise Refused(seen.refused)
        if not isinstance(seen, Seen) or run.failures or run.dead or run.peers_lost:
            return
        if run.ended != "returned" or seen.usual is None:
            return
        program, differs = seen.program, not _alike(seen.outputs, seen.usual)
        raised: Raised | None = None
        if program is not None:
            last = seen.number == len(program.calls) - 1
            if differs:
                raised = program.judged(seen.number, seen.outputs)
            elif last:
                raised = program.failed
            if differs and raised is None and not program.blind(seen.number):
                return
        if raised is None and not differs:
            return
        if differs and program is not None and program.failed is None:
            run.expected, held = seen.expected, run.expected
            yield from Integrity(usual=True).check(run)
            run.expected = held
        if raised is not None:
            yield self._failed(run, seen, raised)
        elif differs:
            unchecked = "the program checks none of them" if program is not None else (
                f"no main checks those of {run.ranks} ranks with these arguments"
            )
            yield finding(
                self.name, "depends_on_schedule", -1,
                f"the outputs differ from those of the default run, and {unchecked}",
            )

    def _failed(self, run: Run, seen: Seen, raised: Raised) -> Finding:
        """Where its check failed; if it is there to see what it compares with, also which rank's output
        is wrong, and what the record says of that."""
        at = place(raised.code, raised.lasti)
        failed = finding(
            self.name, "check_failed", -1,
            f"the program's own check failed at {at}: {type(raised.error).__name__}: "
            f"{one_line(raised.error).removeprefix(type(raised.error).__name__ + ': ')}",
            sites=(site_of(raised.code, raised.lasti, "check"),),
        )
        assert seen.program is not None
        run.expected, held = seen.program.due(seen.number, seen.outputs), run.expected
        wrong = next((one for one in Integrity().check(run) if one.rank >= 0), None)
        run.expected = held
        if wrong is None:
            return failed
        return structs.replace(
            failed, rank=wrong.rank, evidence=(wrong.message, *wrong.evidence), cause=wrong.cause,
            remedy=wrong.remedy, events=wrong.events,
        )


def _alike(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(
        torch.equal(a, b)
        or (a.is_floating_point() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))
        for a, b in zip(left, right, strict=True)
    )
