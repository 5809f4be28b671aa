"""The timeline: lanes as columns, events as rows, deliveries as arrows, the missing edge as `x->`.

A row is one event of the record under its own number. A finding's events are marked `*`. `x->`
stands where an order is missing: a read that came before the write it needed, a wait that never
ended. Only what the record shows is drawn: for a read the write of the same bytes that came later,
for a blocked lane its cell. Where the ranks do not fit side by side the events are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.finding import Finding
from harness.record import CHANGES, DELIVERIES, FETCHED, Event, Run
from harness.report.events import fitting, landings, memory_of, wordings

ROWS_MAX = 24
CELL_MIN = 16
NOISE = frozenset(("window_arrive", "window", "sync_arrive", "join_arrive"))
READS = frozenset(("load", "remote_load", "read", "read_part"))
BEFORE = frozenset(("unwritten_memory", "stale_value"))  # kinds: a read came before its write


@dataclass(frozen=True, slots=True)
class Edge:
    """A missing order, drawn below event `after` in the column of `lane`. texts: fullest first."""

    after: int
    lane: int
    texts: list[str]


@dataclass(frozen=True, slots=True)
class Picture:
    """What a timeline draws: which events, which of them are the finding's, the missing edges, and the
    lanes in columns."""

    chosen: list[int]
    marked: set[int]
    edges: list[Edge]
    lanes: list[int]

    def column(self, run: Run, rank: int) -> int:
        """The lane in whose column stands what happens to a rank's memory."""
        lanes = run.lanes_of(rank)
        return next((lane for lane in lanes if lane in self.lanes), lanes[0])


def picture(run: Run, finding: Finding, rows_max: int | None = ROWS_MAX) -> Picture:
    """What to draw of a run with events; rows_max None: all of them."""
    marked = [index for index in finding.events if index < len(run.raw)]
    edges, needed = _missing(run, finding, marked)
    chosen = _chosen(run, finding, {*marked, *needed}, edges, rows_max)
    return Picture(chosen, set(marked), edges, _lanes(run, chosen, edges, finding))


def timeline(
    run: Run, finding: Finding, *, width: int = 80, rows_max: int | None = ROWS_MAX
) -> list[str]:
    """The lines of the timeline; rows_max None draws every event."""
    if not run.raw:
        return ["no rank had begun"]
    drawn = picture(run, finding, rows_max)
    chosen, marked, edges, ranks = drawn.chosen, drawn.marked, drawn.edges, drawn.lanes
    left = max(len(str(len(run.raw))), 3) + 3
    cell = (width - left) // max(len(ranks), 1)
    if cell < CELL_MIN:
        return _listed(run, chosen, marked, edges, left, width)
    drawing = _Drawing(run, drawn, left, cell, width)
    lines = [drawing.header()]
    lines += drawing.rows(chosen, marked, edges)
    return [*lines, *_legend(run, marked, edges, ranks, width)]


def _legend(
    run: Run, marked: Sequence[int] | set[int], edges: list[Edge], ranks: list[int], width: int
) -> list[str]:
    parts = ["* the finding"] if marked else []
    parts += ["x-> missing edge"] if edges else []
    parts += ["--> delivery"] if any(raw[1] in DELIVERIES for raw in run.raw) else []
    every = len(run.lanes)
    if len(ranks) < every:
        what = "lanes" if every > run.ranks else "ranks"
        parts.append(f"{every - len(ranks)} of {every} {what} not drawn")
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}   {part}" if lines[-1] else part
        if len(joined) > width:
            lines.append(part)
        else:
            lines[-1] = joined
    return ["", *lines] if parts else []


def _missing(run: Run, finding: Finding, marked: list[int]) -> tuple[list[Edge], set[int]]:
    """The missing edges, and the events that they need to be understood."""
    edges: list[Edge] = []
    needed: set[int] = set()
    if finding.kind in BEFORE:
        for index in marked:
            if run.events[index].kind in READS:
                edge, more = _later_write(run, index, marked)
                edges += edge
                needed |= more
    elif finding.checker == "integrity":
        edges += _replaced(run, marked)
    elif finding.checker == "lifetime" and len(marked) > 1:
        late, early = marked[-1], marked[-2]
        lane = run.lane_of(run.events[early])
        texts = [f"x-> event {late} was to come first", f"x-> first: {late}"]
        edges.append(Edge(early, lane, texts))
    end = len(run.raw) - 1
    for blocked in (*run.blocked, *run.livelock):
        texts = [f"x-> {blocked.kind} never ends", f"x-> {blocked.kind}"]
        if blocked.kind == "wait":
            name = run.names[blocked.window].name
            awaited = f"{blocked.compare} {blocked.expected}"
            cell = f"{name}[{blocked.at}]"
            texts[:0] = [
                f"x-> wait {cell} {awaited}, is {blocked.value}",
                f"x-> {cell} {blocked.value}, not {awaited}",
                f"x-> {blocked.value}, not {awaited}",
            ]
        edges.append(Edge(end, blocked.lane, texts))
    return edges, needed


def _replaced(run: Run, marked: list[int]) -> list[Edge]:
    """What replaced the bytes of a marked read before it came, at the place where it did so."""
    for read_at in marked:
        read = run.events[read_at]
        for at in marked if read.kind in READS else ():
            write = run.events[at]
            own = write.kind == "store" and write.owner == read.owner  # in order: nothing is missing
            if at < read_at and write.kind in CHANGES and not own and _overlap(read, write):
                reader = run.lane_name(run.lane_of(read))
                texts = [f"x-> {reader} reads only at {read_at}", f"x-> read at {read_at}"]
                return [Edge(at, run.lanes_of(write.peer)[0], texts)]
    return []


def _later_write(
    run: Run, index: int, marked: list[int]
) -> tuple[list[Edge], set[int]]:
    """The marked write of the bytes that a marked read saw too early."""
    read = run.events[index]
    lane = run.lane_of(read)
    for later in range(index + 1, len(run.raw)):
        event = run.events[later]
        if later not in marked or event.kind not in CHANGES or not _overlap(read, event):
            continue
        by = run.lane_of(event)
        if by == lane and event.kind == "store":
            return [], set()
        issued = _issue_index(run, event)
        memory = memory_of(run, event)
        if issued is not None and issued < index:
            texts = [
                f"x-> #{event.number} is delivered only at {later}",
                f"x-> #{event.number} late",
            ]
        else:
            texts = [f"x-> {memory} is written at {later}", f"x-> event {later}"]
        return [Edge(index, lane, texts)], {later} | ({issued} if issued is not None else set())
    delivered = {event.number for event in run.events if event.kind == "deliver"}
    for before in range(index):
        event = run.events[before]
        if event.number >= 0 and event.number not in delivered and _overlap(read, event):
            edge = Edge(index, lane, [f"x-> #{event.number} is never delivered", "x->"])
            return [edge], {before}
    return [], set()


def _overlap(one: Event, other: Event) -> bool:
    return (
        one.window == other.window
        and one.peer == other.peer
        and one.lo < other.hi
        and other.lo < one.hi
    )


def _issue_index(run: Run, event: Event) -> int | None:
    if event.number < 0:
        return None
    return next(
        (i for i, raw in enumerate(run.raw) if raw[7] == event.number and raw[0] < len(run.lanes)), None
    )


def _chosen(
    run: Run, finding: Finding, core: set[int], edges: list[Edge], rows_max: int | None
) -> list[int]:
    """Which events to draw: the core, what issued its deliveries, then the nearest ones."""
    everything = range(len(run.raw))
    if rows_max is None:
        return list(everything)
    core = {*core, *(edge.after for edge in edges if edge.after >= 0)}
    issued = (_issue_index(run, run.events[index]) for index in core)
    core |= {index for index in tuple(issued) if index is not None}
    if not core:
        core = {len(run.raw) - 1} if run.raw else set()
    room = rows_max - len(edges)
    if len(core) >= room:
        return sorted(core)[-max(room, 1) :]
    quiet = [i for i in everything if run.raw[i][1] not in NOISE or i in core]
    if len(quiet) <= room:
        return quiet
    lanes = {run.lane_of(run.events[i]) for i in core} | {edge.lane for edge in edges}
    if 0 <= finding.rank < run.ranks:
        lanes.update(run.lanes_of(finding.rank))

    peers = {run.lanes[lane][0] for lane in lanes}
    cells = {blocked.window for blocked in run.blocked if blocked.kind == "wait"}

    def far(index: int) -> tuple[int, int]:
        event = run.events[index]
        near = 4 * min(abs(index - other) for other in core)
        if event.window in cells:  # who told whom explains a wait that never ended
            near //= 8
        involved = run.lane_of(event) in lanes or event.peer in peers
        return (near if involved else near * 4), index

    others = sorted((i for i in quiet if i not in core), key=far)
    return sorted([*core, *others[: room - len(core)]])


def _lanes(run: Run, chosen: list[int], edges: list[Edge], finding: Finding) -> list[int]:
    """The lanes that the drawing needs."""
    lanes = {edge.lane for edge in edges}
    for index in chosen:
        event = run.events[index]
        lanes.add(run.lane_of(event))
        if event.kind in DELIVERIES:
            lanes.add(run.lanes_of(event.peer)[0])
    if 0 <= finding.rank < run.ranks and not any(run.lanes[n][0] == finding.rank for n in lanes):
        lanes.add(run.lanes_of(finding.rank)[0])
    return sorted(lanes)


class _Drawing:
    """Ranks in columns of equal width."""

    def __init__(self, run: Run, drawn: Picture, left: int, cell: int, width: int) -> None:
        self.run = run
        self.drawn = drawn
        self.left = left
        self.cell = cell
        self.width = width
        self.at = {rank: left + index * cell for index, rank in enumerate(drawn.lanes)}

    def header(self) -> str:
        """The columns' names."""
        text = "event".ljust(self.left)
        for rank in self.at:
            name = self.run.lane_name(rank)
            text += fitting([name, name.replace(", thread ", " ")], self.cell - 1).ljust(self.cell)
        return text.rstrip()

    def rows(self, chosen: list[int], marked: set[int], edges: list[Edge]) -> list[str]:
        """One line an event; gaps are counted, missing edges stand below their events."""
        lines: list[str] = []
        before = -1
        shown = set(chosen)
        for index in chosen:
            if index > before + 1:
                lines.append(_gap(self.run, before, index, self.left))
            sign = "*" if index in marked else " "
            number = str(index).rjust(self.left - 3)
            text = self._event(index, wide=index in marked)
            lines.append(f"{sign}{number}  {text}".rstrip())
            lines += [self._edge(edge) for edge in edges if edge.after == index]
            before = index
        if before < len(self.run.raw) - 1:
            lines.append(_gap(self.run, before, len(self.run.raw), self.left))
        lines += [self._edge(edge) for edge in edges if edge.after not in shown]
        return lines

    def _event(self, index: int, *, wide: bool) -> str:
        """One event in its column. wide: it may go on to the right of it, where nothing stands."""
        event = self.run.events[index]
        lane = self.run.lane_of(event)
        if event.kind not in DELIVERIES:
            room = self.width - self.at[lane] if wide else self.cell - 1
            text = fitting(wordings(self.run, event), room)
            return " " * (self.at[lane] - self.left) + text
        source, target = lane, self.drawn.column(self.run, event.peer)
        if event.kind == "land":
            source = self.drawn.column(self.run, self.run.issue_of(event).peer)
            target = lane
        if event.kind in FETCHED:
            source = target
        return self._arrow(event, source, target)

    def _arrow(self, event: Event, source: int, target: int) -> str:
        name = f"#{event.number}"
        to = self.at[target] - self.left
        texts = landings(self.run, event)
        if source == target or source not in self.at:
            return " " * to + fitting([f"{name} {text}" for text in texts], self.cell - 1)
        begin = self.at[source] - self.left
        if begin < to:
            dashes = "-" * (to - begin - len(name) - 3)
            return f"{' ' * begin}{name} {dashes}> {fitting(texts, self.cell - 1)}"
        landed = fitting(texts, self.cell - 3)
        dashes = "-" * (begin - to - len(landed) - 3)
        return f"{' ' * to}{landed} <{dashes} {name}"

    def _edge(self, edge: Edge) -> str:
        return " " * self.at[edge.lane] + fitting(edge.texts, self.width - self.at[edge.lane])


def _gap(run: Run, before: int, after: int, left: int) -> str:
    count = after - before - 1
    kinds = {run.raw[index][1] for index in range(before + 1, after)}
    what = " of window allocation" if kinds <= {"window", "window_arrive"} else ""
    return f"{'...'.rjust(left - 2)}  {count} event{'s' if count > 1 else ''}{what}"


def _listed(
    run: Run, chosen: list[int], marked: set[int], edges: list[Edge], left: int, width: int
) -> list[str]:
    """One event a line, for many ranks or narrow terminals."""
    lines = []
    before = -1
    shown = set(chosen)

    def edge_lines(wanted: list[Edge]) -> list[str]:
        return [
            " " * left + fitting([f"{run.lane_name(e.lane)}: {text}" for text in e.texts], width - left)
            for e in wanted
        ]

    for index in chosen:
        if index > before + 1:
            lines.append(_gap(run, before, index, left))
        event = run.events[index]
        who = run.lane_name(run.lane_of(event))
        texts = [f"{who}: {text}" for text in wordings(run, event)]
        if event.kind in DELIVERIES:
            texts = [
                f"{who}: #{event.number} --> rank {event.peer} {text}"
                for text in landings(run, event)
            ]
        sign = "*" if index in marked else " "
        lines.append(f"{sign}{str(index).rjust(left - 3)}  {fitting(texts, width - left)}")
        lines += edge_lines([edge for edge in edges if edge.after == index])
        before = index
    if before < len(run.raw) - 1:
        lines.append(_gap(run, before, len(run.raw), left))
    lines += edge_lines([edge for edge in edges if edge.after not in shown])
    return [*lines, *_legend(run, marked, edges, list(range(len(run.lanes))), width)]
