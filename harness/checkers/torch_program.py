"""What is wrong in a run of a program that is written against torch.distributed.

At most one finding about calls that do not fit: the root, first of ranks on one card
(torch_devices.py), else of what does not agree or is left out (torch_matching.py), else why the ranks
stand still (torch_waits.py); what ranks raised because of it are its consequences. Beside it what was
done to tensors in flight (torch_buffers.py), and, of a run that has nothing of this: a result that
another schedule changes.

schedule_dependent_result: what the ranks came to (Scenario.comes_to: what they printed and returned)
differs from the default run's, though no fault was planted. The run itself holds both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from harness.checkers.failures import aftermath
from harness.checkers.torch_buffers import buffers
from harness.checkers.torch_devices import same_device
from harness.checkers.torch_matching import NAME, call_site, matching, where
from harness.checkers.torch_waits import standstill
from harness.checkers.wording import finding, ranks
from harness.diagnosis.table import BECAUSE
from harness.finding import Finding
from harness.frontends.torch_distributed.calls import ANY, Call
from harness.record import Run

SHOWN_MAX = 160


class TorchProgram:
    """Kinds: same_device, different_collective, different_order, different_reduce_op, different_shape,
    different_dtype, different_root, different_splits, different_group, missing_collective,
    missing_message, different_tag, different_message_size, different_message_dtype,
    send_recv_cycle, cycle, unsatisfied, non_member_call, changed_in_flight, read_in_flight,
    overlapping_in_flight, dropped_handle, schedule_dependent_result."""

    name = NAME

    def check(self, run: Run) -> Iterable[Finding]:
        """The root first, then what was done to tensors in flight."""
        if not run.torch_calls:
            return
        root = same_device(run) or matching(run) or standstill(run)
        if root is not None:
            yield msgspec.structs.replace(
                root, consequences=tuple(aftermath(run)), **_by_threads(run, root)
            )
        found = list(buffers(run))
        yield from found
        if root is None and not found and not run.failures and run.ended == "returned":
            yield from _another_result(run)


def _by_threads(run: Run, root: Finding) -> dict[str, Any]:
    """What a finding says otherwise where two threads of a rank use one group: its cause and remedy."""
    if root.cause == BECAUSE["lock_over_collective"][0]:
        return {}
    users: dict[tuple[str, int], dict[str, None]] = {}
    for call in [c for calls in run.torch_calls for c in calls if not c.p2p and c.number >= 0]:
        users.setdefault((call.group_name, call.rank), {})[call.thread] = None
    for (group, rank), threads in users.items():
        if len(threads) > 1:
            who = " and ".join(f"thread {name!r}" if name else "the main thread" for name in threads)
            cause, remedy = BECAUSE["two_threads"]
            line = f"collectives of group {group!r} are made by {who} of rank {rank}"
            return {"evidence": (*root.evidence, line), "cause": cause, "remedy": remedy}
    return {}


def _another_result(run: Run) -> Iterable[Finding]:
    """The ranks that came to something else than in the default run."""
    if run.usually is None or run.came_to == run.usually:
        return
    pairs = list(zip(run.came_to, run.usually, strict=True))
    other = [rank for rank, (now, usual) in enumerate(pairs) if now != usual]
    open_ended = _any_rank(run)
    evidence = [
        f"rank {rank} came to {_shown(*pairs[rank])}; in the default run to {_shown(*pairs[rank][::-1])}"
        for rank in other[:3]
    ]
    evidence += [f"takes whatever comes first: rank {c.rank}'s {where(c)}" for c in open_ended[:2]]
    yield finding(
        NAME, "schedule_dependent_result", other[0],
        f"{ranks(other)} came to another result than in the default run: the order of events decides it",
        sites=[call_site(call) for call in open_ended[:1]], evidence=evidence,
    )


def _any_rank(run: Run) -> list[Call]:
    return [c for calls in run.torch_calls for c in calls if c.kind == "recv" and c.peer == ANY]


def _shown(text: str, beside: str) -> str:
    """The first line of `text` that is not in `beside`, quoted."""
    lines = text.splitlines()
    there = beside.splitlines()
    for number, line in enumerate(lines):
        if number >= len(there) or there[number] != line:
            return repr(line[:SHOWN_MAX])
    return "less: " + repr(lines[-1][:SHOWN_MAX] if lines else "")
