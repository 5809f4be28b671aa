"""What PyPTO's users look for in `dfx_outputs/`, from the record of a run: swimlanes, memory, task graph.

    for path, text in dfx_files(run).items(): ...      # "rank0/d0/deps.json", ...

A folder `rank{r}/d{k}` a dispatch: device r's k-th. In it

    chip_swimlane_records.json      tasks and operations of each core, from which event to which
    deps.json                       the tasks of the dispatch, and which waits for which
    scope_stats/scope_stats.jsonl   a line a task: bytes of windows and of the heap, tasks not yet ended

The schema is ours (docs/pypto.md). Time is the number of the event: a run has no other clock. The front
end notes what happens on a device as it happens (`Note`); the notes stand in the run's record.

Not modelled: what a chip would add (cycles, tensor maps, rings), and merged traces of several chips: the
timeline of the report is that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from harness.record import DELIVERIES, Event, Run, place

if TYPE_CHECKING:
    from harness.fabric.simulated_rank import SimulatedRank

What = Literal["dispatch", "submit", "start", "end", "heap"]
SCHEMA = "rankfault-dfx-1"


class Note(NamedTuple):
    """Something that happened on a device, before event `at`.

    dispatch: a dispatch of `name` began. submit: its task `number` is known, and waits for `deps`.
    start, end: of task `number`, on the lane `lane`. heap: `amount` bytes of `name` were allocated
    (negative: freed). Task 0 of a dispatch is its orchestration.
    """

    at: int
    what: What
    number: int = 0
    name: str = ""
    deps: tuple[int, ...] = ()
    lane: int = 0
    amount: int = 0


def note(
    rank: SimulatedRank, what: What, number: int = 0, *, name: str = "", deps: tuple[int, ...] = (),
    lane: int = 0, amount: int = 0,
) -> None:
    """Add to the notes of `rank`'s device, as of now."""
    rank._state.notes.append(Note(len(rank._events), what, number, name, deps, lane, amount))


@dataclass(slots=True)
class _Task:
    """One task of a dispatch; -1: it did not start, or did not end."""

    number: int
    name: str
    deps: tuple[int, ...]
    submitted: int
    start: int = -1
    end: int = -1
    core: int = 0


@dataclass(slots=True)
class _Dispatch:
    """One dispatch of a device, from event `first` to before `last`."""

    name: str
    first: int
    last: int = -1
    tasks: dict[int, _Task] = field(default_factory=dict)
    heap: list[tuple[int, int]] = field(default_factory=list)  # event, bytes since the call began

    def heap_at(self, event: int) -> int:
        """Bytes of the heap in use before `event`."""
        return next((size for at, size in reversed(self.heap) if at <= event), 0)


def dfx_files(run: Run) -> dict[str, str]:
    """The files by their path below `dfx_outputs/`; none for a run that noted nothing."""
    files = {}
    for rank, notes in enumerate(run.notes):
        for number, dispatch in enumerate(_dispatches(notes, len(run.raw))):
            folder = f"rank{rank}/d{number}"
            head = {"schema": SCHEMA, "rank": rank, "dispatch": number, "name": dispatch.name}
            files[f"{folder}/deps.json"] = _json({**head, **_graph(dispatch)})
            files[f"{folder}/chip_swimlane_records.json"] = _json({**head, **_lanes(run, rank, dispatch)})
            lines = [_line(one) for one in _memory(run, rank, dispatch)]
            files[f"{folder}/scope_stats/scope_stats.jsonl"] = "".join(lines)
    return files


def write_dfx(run: Run, folder: Path) -> None:
    """Write the files below `folder`, which is called dfx_outputs as a rule."""
    for name, text in dfx_files(run).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _dispatches(notes: Sequence[Note], events: int) -> list[_Dispatch]:
    made: list[_Dispatch] = []
    heap = 0
    for one in notes:
        if one.what == "dispatch":
            if made:
                made[-1].last = one.at
            made.append(_Dispatch(one.name, one.at, heap=[(one.at, heap)]))
            made[-1].tasks[0] = _Task(0, one.name, (), one.at, one.at, core=one.lane)
        elif not made:  # pragma: no cover - the front end notes a dispatch first
            continue
        elif one.what == "submit":
            made[-1].tasks[one.number] = _Task(one.number, one.name, one.deps, one.at)
        elif one.what == "heap":
            heap += one.amount
            made[-1].heap.append((one.at, heap))
        else:
            task = made[-1].tasks[one.number]
            if one.what == "start":
                if task.start < 0:  # of several blocks, the first
                    task.start, task.core = one.at, one.lane
            else:
                task.end = one.at
    if made:
        made[-1].last = events
    return made


def _graph(dispatch: _Dispatch) -> dict[str, Any]:
    tasks = dispatch.tasks.values()
    return {
        "tasks": [
            {"task": t.number, "name": t.name, "submitted": t.submitted, "deps": list(t.deps),
             "state": "ended" if t.end >= 0 else "started" if t.start >= 0 else "waits"}
            for t in tasks
        ],
        "edges": [[before, t.number] for t in tasks for before in t.deps],
    }


def _lanes(run: Run, rank: int, dispatch: _Dispatch) -> dict[str, Any]:
    return {
        "tasks": [
            {"task": t.number, "name": t.name, "core": t.core, "start": t.start, "end": t.end}
            for t in dispatch.tasks.values() if t.start >= 0
        ],
        "operations": list(_operations(run, rank, dispatch)),
    }


def _operations(run: Run, rank: int, dispatch: _Dispatch) -> Iterator[dict[str, Any]]:
    """From the event after the lane's last one to its own: a wait is as long as it waited."""
    cores = {lane: core for core, lane in enumerate(run.lanes_of(rank))}
    last = dict.fromkeys(cores, dispatch.first - 1)
    for index in range(dispatch.first, min(dispatch.last, len(run.raw))):
        event = Event._make(run.raw[index])
        if event.kind in DELIVERIES or event.owner not in cores:
            continue
        record = {
            "core": cores[event.owner], "operation": event.kind, "start": last[event.owner] + 1,
            "end": index, "line": place(event.code, event.lasti),
        }
        if event.window >= 0:
            record |= {
                "memory": run.names[event.window].name, "peer": event.peer, "bytes": [event.lo, event.hi]
            }
        last[event.owner] = index
        yield record


def _memory(run: Run, rank: int, dispatch: _Dispatch) -> Iterator[dict[str, Any]]:
    """A line a task, in order of submission, then the high-water marks of the dispatch."""
    windows = sum(w.nbytes for w in run.names if w.kind == "window" and rank in w.regions)
    tasks = list(dispatch.tasks.values())
    most_open = 0
    for task in tasks:
        still = sum(t.submitted <= task.submitted and not 0 <= t.end <= task.submitted for t in tasks)
        most_open = max(most_open, still)
        yield {
            "scope": task.name, "task": task.number, "start": task.start, "end": task.end,
            "windows_bytes": windows, "heap_bytes": dispatch.heap_at(task.submitted), "tasks_open": still,
        }
    yield {
        "scope": "high water", "windows_bytes": windows, "heap_bytes": max(s for _, s in dispatch.heap),
        "tasks_open": most_open,
    }


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"
