"""gloo under faults and mistakes: every survivor has an error in time, or a right result.

Real ranks are forked for each plan (0.15 s) and make the plan's calls (steps.py). Something happens to
one of them, the victim: in one of its calls it is late, leaves it out, exchanges it with the next, is
killed or stopped; or its program makes a mistake there. The others may fail within their time-out, or
have the results that they have without it. Ended by a signal, still there, or silently wrong: a finding.
What the victim itself gets is not judged. The time-out is 1 s where one is to be expected, else 10 s, so
that a busy machine makes none.

Not modelled: NCCL; flipped bits, which nobody promises to notice.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import torch
import torch.distributed
from msgspec import Meta

from faults.process_groups import DroppedCall, KilledInCall, LateCall, SwappedCalls
from faults.processes import Killed, Stopped
from harness import Fault, Finding, Limits, Rank, RealOutcome, Run, Scenario, Site, World, run_real

STEPS = str(Path(__file__).with_name("steps.py"))
HURRIED = Limits(operation=1.0, plan=30.0)
PATIENT = Limits(operation=10.0, plan=60.0)
GIVEN_UP = ("too_late", "other_size", "other_root", "other_kind")  # what may end in a time-out
Kind = Literal[
    "all_reduce", "broadcast", "all_gather", "gather", "reduce_scatter", "all_to_all", "send", "barrier"
]
FAULTS: dict[str, type[Fault]] = {
    "late": LateCall, "too_late": LateCall, "dropped": DroppedCall, "swapped": SwappedCalls,
    "killed": Killed, "killed_inside": KilledInCall, "stopped": Stopped,
}
MISTAKES = ("other_size", "other_dtype", "other_op", "other_root", "other_kind")
MILLISECONDS = {"late": 300, "too_late": 1600, "stopped": 300}


class Gloo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """calls: made by every rank, in order. deferred: all are issued before one is waited for. event: what
    happens to rank `victim` (modulo the world size) in its call number `at`."""

    calls: Annotated[tuple[Kind, ...], Meta(min_length=1, max_length=4)] = ("all_reduce", "all_reduce")
    dtype: Literal["float32", "bfloat16", "int32", "int64", "uint8"] = "float32"
    numel: Annotated[int, Meta(ge=0, le=4097)] = 4
    deferred: bool = False
    event: Literal[
        "none", "late", "too_late", "dropped", "swapped", "killed", "killed_inside", "stopped",
        "other_size", "other_dtype", "other_op", "other_root", "other_kind",
    ] = "none"
    at: Annotated[int, Meta(ge=0, le=7)] = 0
    victim: Annotated[int, Meta(ge=0, le=3)] = 0


class Ended(msgspec.Struct, frozen=True):
    """What became of the ranks. expected: what each prints when nothing happens."""

    outcome: RealOutcome
    expected: tuple[str, ...]
    struck: frozenset[int]
    event: str


class ProcessGroupChecker:
    """Kinds: aborted, hang, silence. What they mean: RealOutcome.findings."""

    name = "process_group"

    def check(self, run: Run) -> Iterable[Finding]:
        """The findings about survivors."""
        if isinstance(run.observed, Ended):
            ended = run.observed
            for found in ended.outcome.findings(ended.expected, ended.struck):
                site = Site("victim", ended.event)
                yield msgspec.structs.replace(found, sites=(found.sites[0], site))


def _host(world: World, params: Gloo) -> Ended:
    for rank in range(world.size):
        world.dispatch(_nothing, device=rank)
    quiet = msgspec.structs.replace(params, event="none", at=0, victim=0)
    expected = _printed(quiet, world.size)
    if params.event == "none":
        return Ended(_ran(quiet, world.size), expected, frozenset(), params.event)
    victim = params.victim % world.size
    return Ended(_ran(params, world.size), expected, frozenset((victim,)), params.event)


@functools.lru_cache(maxsize=256)
def _printed(params: Gloo, size: int) -> tuple[str, ...]:
    """What each rank prints. Raises RuntimeError where a world to which nothing happens fails."""
    outcome = _ran(params, size)
    if outcome.first is not None:
        raise RuntimeError(f"nothing has happened, and yet: {outcome}")
    return tuple(one.printed for one in outcome.ranks)


def _ran(params: Gloo, size: int) -> RealOutcome:
    limits = HURRIED if params.event in GIVEN_UP else PATIENT
    victim = params.victim % size
    told = {
        "calls": params.calls, "dtype": params.dtype, "numel": params.numel, "deferred": params.deferred,
        "mistake": params.event if params.event in MISTAKES else "", "at": params.at % len(params.calls),
        "victim": victim,
    }
    faults = []
    if params.event in FAULTS:
        calls = len(params.calls) + params.calls.count("send")  # a message has two ends
        given = {"rank": victim, "nth": params.at % calls}
        if params.event in MILLISECONDS:
            given["milliseconds"] = MILLISECONDS[params.event]
        faults.append(FAULTS[params.event](**given))
    return run_real(STEPS, [json.dumps(told)], ranks=size, faults=faults, limits=limits)


def _nothing(rank: Rank) -> int:
    """The rank has no part in it: the host program starts real ones."""
    return rank.index


def _missing() -> str:
    return "" if torch.distributed.is_gloo_available() else "this torch is built without gloo"


def _version() -> str:
    return f"gloo of torch {torch.__version__.partition('+')[0]}"


gloo = Scenario(
    name="process_groups.gloo", host=_host, params=Gloo, ranks=(2, 4), checkers=(ProcessGroupChecker(),),
    unavailable=_missing, subject=_version,
    doc="Real ranks on gloo, one of which is late, wrong or gone.",
)
