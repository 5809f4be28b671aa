"""The timeline as a picture: a space-time diagram in one SVG, with nothing outside it.

Lanes are vertical lines, time goes down, a row an event under its own number. An operation in flight is
an arrow from its issue to where it is delivered (dashed where its issue is not drawn). The finding's
events are red, and so is `x` where an order is missing. Fonts and colours are plain enough for print.
"""

from __future__ import annotations

from html import escape

from harness.finding import Finding
from harness.record import DELIVERIES, Event, Run
from harness.report.events import fitting, landings, wordings
from harness.report.timeline import ROWS_MAX, Picture, picture

ROW = 22
HEAD = 34
LEFT = 56
COLUMN_MIN, COLUMN_MAX = 210, 330
WIDTH = 1000
CHARACTER = 7.3  # of the 12 px monospace font
INK, FAINT, RED, BLUE = "#222222", "#b8b8b8", "#c62828", "#1f5fa8"


def timeline_svg(run: Run, finding: Finding, *, rows_max: int | None = ROWS_MAX) -> str:
    """The picture of a finding, as the text of an SVG file."""
    if not run.raw:
        return _page(360, HEAD + ROW, [_text(8, HEAD, "no rank had begun", INK)])
    return _Diagram(run, picture(run, finding, rows_max)).svg(finding)


class _Diagram:
    """One picture's geometry."""

    def __init__(self, run: Run, drawn: Picture) -> None:
        self.run = run
        self.drawn = drawn
        count = max(len(drawn.lanes), 1)
        self.column = int(min(max((WIDTH - LEFT) / count, COLUMN_MIN), COLUMN_MAX))
        self.x = {lane: LEFT + 14 + at * self.column for at, lane in enumerate(drawn.lanes)}
        self.y: dict[int, int] = {}
        self.below: dict[int, int] = {}  # by missing edge, by its place in the list
        self.gaps: list[tuple[int, int]] = []  # y, events left out
        y, before = HEAD + ROW, -1
        for index in drawn.chosen:
            if index > before + 1:
                self.gaps.append((y, index - before - 1))
                y += ROW
            self.y[index] = y
            y += ROW
            for number, edge in enumerate(drawn.edges):
                if edge.after == index:
                    self.below[number] = y
                    y += ROW
            before = index
        left = len(run.raw) - 1 - before
        if left:
            self.gaps.append((y, left))
            y += ROW
        for number in range(len(drawn.edges)):
            if number not in self.below:
                self.below[number] = y
                y += ROW
        self.height = y

    def svg(self, finding: Finding) -> str:
        """All of it: lines first, arrows over them, text on top."""
        parts = [_text(8, 20, finding.name, INK, bold=True)]
        for lane, x in self.x.items():
            parts.append(_text(x - 6, HEAD + 4, self.run.lane_name(lane), INK, bold=True))
            parts.append(_line(x, HEAD + 10, x, self.height - 8, FAINT))
        arrows: list[str] = []
        texts: list[str] = []
        for index in self.drawn.chosen:
            lines, over = self._event(index)
            arrows += lines
            texts += over
        for y, count in self.gaps:
            texts.append(_text(8, y + 4, f"…  {count} event{'s' if count > 1 else ''}", "#777777"))
        for number, edge in enumerate(self.drawn.edges):
            x, y = self.x[edge.lane], self.below[number]
            text = fitting([t.removeprefix("x-> ") for t in edge.texts], self._room(edge.lane))
            texts += [_cross(x, y), _text(x + 12, y + 4, text, RED)]
        return _page(LEFT + 24 + self.column * len(self.x), self.height, [*parts, *arrows, *texts])

    def _room(self, lane: int) -> int:
        """Characters to the right of a lane."""
        last = lane == self.drawn.lanes[-1]
        return int((self.column - (4 if last else 16)) / CHARACTER)

    def _event(self, index: int) -> tuple[list[str], list[str]]:
        event = self.run.events[index]
        y = self.y[index]
        colour = RED if index in self.drawn.marked else INK
        number = _text(8, y + 4, f"{index:>4}", colour)
        lane = self.run.lane_of(event)
        if event.kind in DELIVERIES:
            arrow, over = self._delivery(event, y, colour)
            return arrow, [number, *over]
        x = self.x[lane]
        text = fitting(wordings(self.run, event), self._room(lane))
        return [], [number, _dot(x, y, colour), _text(x + 10, y + 4, text, colour)]

    def _delivery(self, event: Event, y: int, colour: str) -> tuple[list[str], list[str]]:
        """An arrow from the issue (or, of a get's landing, from where it read) to this event."""
        lane = self.run.lane_of(event)
        to = lane if event.kind == "land" else self.drawn.column(self.run, event.peer)
        origin = self.run.issue_of(event)
        issued = next(
            (i for i in self.drawn.chosen if self.run.events[i] is origin), None
        )
        start = self.drawn.column(self.run, origin.peer) if event.kind == "land" else lane
        texts = [f"#{event.number} {text}" for text in landings(self.run, event)]
        text = fitting(texts, self._room(to))
        stroke = RED if colour == RED else BLUE
        from_right = start in self.x and self.x[start] > self.x[to]  # its head needs the room
        at = self.x[to] + (18 if from_right else 10)
        drawn = [_dot(self.x[to], y, stroke), _text(at, y + 4, text, colour)]
        if start not in self.x or start == to:
            return [], drawn
        high = y if issued is None or event.kind == "land" else self.y[issued]
        return [_arrow(self.x[start], high, self.x[to], y, stroke, dashed=issued is None)], drawn


def _page(width: int, height: int, parts: list[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f"<defs>{_head('red', RED)}{_head('blue', BLUE)}</defs>\n{inside}\n</svg>\n"
    )


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
    )


def _text(x: float, y: float, text: str, colour: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (  # on a ground of its own, so that no arrow crosses it
        f'<rect x="{x - 1:g}" y="{y - 10:g}" width="{CHARACTER * len(text) + 2:.0f}" height="13" '
        f'fill="#ffffff"/><text x="{x:g}" y="{y:g}" fill="{colour}"{weight} xml:space="preserve">'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"/>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{colour}"/>'


def _cross(x: float, y: float) -> str:
    return (
        f'<path d="M{x - 4:g} {y - 4:g}l8 8m0 -8l-8 8" stroke="{RED}" stroke-width="2" fill="none"/>'
    )


def _arrow(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool) -> str:
    short = 5 if x2 > x1 else -5
    style = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2 - short:g}" y2="{y2:g}" stroke="{colour}" '
        f'stroke-width="1.4"{style} marker-end="url(#{"red" if colour == RED else "blue"})"/>'
    )
