"""The detection matrix as one HTML page: no scripts, nothing from a network, light and dark.

The page says what the text says, what is wrong first. Everything in it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from harness.matrix import FAILING, UNPROVEN, Row, Status, counted, in_order
from harness.report.matrix_text import HEADINGS, LEGEND, command, replay, summary

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #5b6572; --page: #fbfbfa; --card: #fff;
  --line: #dfe3e8; --bad: #b42318; --bad-page: #fdecea; --warn: #8a5a00; --warn-page: #fff5dd;
  --good: #1a6b3c; --good-page: #e6f4ea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b3; --page: #14171b;
  --card: #1c2026; --line: #323943; --bad: #ff8f85; --bad-page: #3a1d1b; --warn: #f0c36a;
  --warn-page: #35290f; --good: #7fd6a0; --good-page: #173024; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.6rem; }
h2 { margin: 2.25rem 0 .5rem; font-size: 1.15rem; }
h3 { margin: 1.5rem 0 .35rem; font-size: 1rem; font-family: ui-monospace, monospace; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
.verdict { display: inline-block; margin: .5rem 0; padding: .3rem .8rem; border-radius: .4rem;
  font-weight: 600; }
.good { color: var(--good); background: var(--good-page); }
.bad { color: var(--bad); background: var(--bad-page); }
.warn { color: var(--warn); background: var(--warn-page); }
.card { margin: .6rem 0; padding: .7rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-left-width: .3rem; border-radius: .4rem; }
.card.bad { border-left-color: var(--bad); } .card.warn { border-left-color: var(--warn); }
.card.bad, .card.warn { color: inherit; background: var(--card); }
pre { margin: .5rem 0 0; padding: .5rem .7rem; overflow-x: auto; background: var(--page);
  border: 1px solid var(--line); border-radius: .3rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; background: var(--card);
  border: 1px solid var(--line); }
th, td { padding: .35rem .7rem; text-align: left; vertical-align: top;
  border-top: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
details summary { cursor: pointer; }
"""


def page(rows: Iterable[Row]) -> str:
    """The whole page."""
    ordered = in_order(rows)
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Rankfault: detection matrix</title><style>{_STYLE}</style></head><body>",
        "<h1>Detection matrix</h1>",
        '<p class="soft">Every planted bug against its scenario: is it caught, how soon, how small?</p>',
        _verdict(ordered),
    ]
    for status in (*FAILING, *UNPROVEN):
        parts += _wrong(status, [row for row in ordered if row.status == status])
    parts += ["<h2>Summary</h2><ul>"]
    parts += [f"<li>{escape(line)}</li>" for line in summary(ordered)]
    parts += ["</ul>"]
    parts += _bugs([row for row in ordered if row.kind in ("mutant", "fault") and row.plans])
    parts += _equivalents([row for row in ordered if row.kind == "equivalent"])
    parts += _twins([row for row in ordered if row.kind == "twin"])
    parts += ["</body></html>\n"]
    return "\n".join(parts)


def _verdict(rows: Sequence[Row]) -> str:
    told = [
        (status, sum(row.status == status for row in rows)) for status in (*FAILING, *UNPROVEN)
    ]
    wrong = [f"{HEADINGS[status]}: {count}" for status, count in told if count]
    if not wrong:
        return '<p class="verdict good">All caught, no false alarm</p>'
    tone = "bad" if any(row.status in FAILING for row in rows) else "warn"
    return f'<p class="verdict {tone}">{escape(" · ".join(wrong))}</p>'


def _wrong(status: Status, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    tone = "bad" if status in FAILING else "warn"
    parts = [f"<h2>{HEADINGS[status]} ({len(rows)})</h2>"]
    if status == "not_run":
        return [*parts, f"<p>{escape(rows[0].reason)}.</p>"]
    for row in rows:
        again = replay(row) if row.shrunk and not row.missed else command(row)
        parts.append(
            f'<div class="card {tone}"><code>{escape(row.scenario)}</code> {row.kind} '
            f"<strong>{escape(row.name)}</strong><p>{escape(row.reason)}</p><pre>{escape(again)}</pre></div>"
        )
    return parts


def _bugs(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    by: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.scenario, row.kind != "mutant", row.name)):
        by.setdefault(row.scenario, []).append(row)
    parts = ["<h2>Planted bugs</h2>", f'<p class="soft">{escape(LEGEND)}.</p>']
    for scenario, mine in by.items():
        parts += [
            f'<h3>{escape(scenario)}</h3><div class="wide"><table><thead><tr><th>bug</th>'
            '<th>caught by</th><th class="number">plans</th><th class="number">p95</th>'
            '<th class="number">P</th><th class="number">shrunk</th></tr></thead><tbody>'
        ]
        parts += [_bug(row) for row in mine]
        parts += ["</tbody></table></div>"]
    return parts


def _bug(row: Row) -> str:
    total = len(row.root_seeds)
    found = "<br>".join(
        f"<code>{escape(name)}</code>" + (f" ({count} of {total})" if count < total else "")
        for name, count in row.found.items()
    )
    one = row.shrunk
    small = "-"
    if one:
        size = f"{one.ranks}+{one.deviations}{'' if one.proven else '?'}"
        small = (
            f'<details><summary title="{escape(one.why)}">{size}</summary>'
            f"<code>{escape(one.finding)}</code></details>"
        )
    tone = ' class="bad"' if row.status in FAILING else ""
    return (
        f"<tr{tone}><td>{'fault ' if row.kind == 'fault' else ''}<code>{escape(row.name)}</code></td>"
        f'<td>{found or "nothing"}</td><td class="number">{row.median:g}</td>'
        f'<td class="number">{row.percentile95}</td>'
        f'<td class="number">{row.smallest_ranks or "-"}</td><td class="number">{small}</td></tr>'
    )


def _equivalents(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    parts = [
        '<h2>Declared equivalents</h2><div class="wide"><table><thead><tr><th>scenario</th>'
        '<th>fault</th><th class="number">fired</th><th>reason given</th><th>verdict</th>'
        "</tr></thead><tbody>"
    ]
    for row in rows:
        fired = f"{row.fired.get(row.name, 0):,} of {counted(row.plans_run, 'plan')}"
        verdict = "verified" if row.status == "equivalent" else row.reason
        parts.append(
            f"<tr><td><code>{escape(row.scenario)}</code></td><td><code>{escape(row.name)}</code></td>"
            f'<td class="number">{fired}</td><td>{escape(" ".join(row.declared))}</td>'
            f"<td>{escape(verdict)}</td></tr>"
        )
    return [*parts, "</tbody></table></div>"]


def _twins(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    parts = [
        '<h2>Twins</h2><p class="soft">The correct systems, under what the world does to them.</p>'
        '<div class="wide"><table><thead><tr><th>scenario</th><th class="number">plans</th>'
        '<th class="number">distinct runs</th><th>fired (plans)</th><th>verdict</th></tr></thead>'
        "<tbody>"
    ]
    for row in rows:
        fired = ", ".join(f"{name} {count:,}" for name, count in row.fired.items()) or "nothing"
        verdict = "clean" if row.status == "clean" else row.reason
        parts.append(
            f'<tr><td><code>{escape(row.scenario)}</code></td><td class="number">{row.plans_run:,}</td>'
            f'<td class="number">{row.distinct_runs:,}</td><td>{escape(fired)}</td>'
            f"<td>{escape(verdict)}</td></tr>"
        )
    return [*parts, "</tbody></table></div>"]
