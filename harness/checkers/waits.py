"""Who waits for whom in a blocked world: the AND/OR graph, as lines of text.

A node is a blocked lane. `any of` its edges would free a wait: ranks that could notify the cell as far
as this run tells (deadlock.py says how they are inferred), and operations on it that are in flight.
`all of` its edges must come for a rendezvous: the ranks that have not arrived. Below each edge stands
what that rank does; `<- here` marks the lanes of the finding. Source: algorithms.md section 6.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harness.checkers.signals import Debt
from harness.checkers.wording import cell_of
from harness.record import Blocked, Run, place


def graph(
    run: Run, blocked: Mapping[int, Blocked], debts: Mapping[int, Debt], roots: Collection[int]
) -> list[str]:
    """One node after the other, the lanes of the finding first."""
    lines = []
    for lane in sorted(blocked, key=lambda lane: (lane not in roots, lane)):
        node = blocked[lane]
        mark = "  <- here" if lane in roots else ""
        edges = _edges(run, node, debts[lane])
        needs = "" if not edges else ", any of" if node.kind == "wait" else ", all of"
        lines.append(f"{run.lane_name(lane)} {_what(run, node)}{needs}{mark}")
        lines += [f"    {name}: {_state(run, blocked, name)}" for name in edges]
    return lines


def _what(run: Run, node: Blocked) -> str:
    if node.kind == "wait":
        return f"wait {cell_of(run, node)}"
    if node.compare == ">=":
        of = f" of group {list(node.group)}" if node.group else ""
        return f"{node.kind}{of}, {node.value} of {node.expected} arrived"
    if node.kind in ("quiet", "get"):
        return f"{node.kind}, {node.value} in flight"
    return node.kind


def _edges(run: Run, node: Blocked, debt: Debt) -> list[str]:
    """The other end of each edge: `rank 1 lane 0`, or `put #3`."""
    ranks = debt.expected if node.kind == "wait" else debt.debtors
    names = [
        run.lane_name(lane) for rank in ranks for lane in run.lanes_of(rank) if lane != node.lane
    ]
    for _, event in run.undelivered():
        cell = (event.window, event.peer, event.lo)
        here = node.kind == "wait" and cell == (node.window, node.rank, node.lo)
        if here or (node.kind in ("quiet", "get") and event.owner == node.lane):
            names.append(f"{event.kind} #{event.number}")
    return names


def _state(run: Run, blocked: Mapping[int, Blocked], name: str) -> str:
    lane = next((n for n in range(len(run.lanes)) if run.lane_name(n) == name), None)
    if lane is None:
        return "issued, not delivered"
    if lane in blocked:
        node = blocked[lane]
        return f"blocked in {node.kind} at {place(node.code, node.lasti)}"
    rank = run.lanes[lane][0]
    if rank in run.dead:
        return "died"
    if any(failure.lane == lane for failure in run.failures):
        return "raised"
    return "has returned"
