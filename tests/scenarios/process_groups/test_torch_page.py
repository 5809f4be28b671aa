"""docs/torch.md: its table of what gloo does is what gloo does, its example runs."""

import re
from pathlib import Path

import pytest

from harness import Plan, run
from scenarios.process_groups.gloo import Gloo, gloo

PAGE = Path(__file__).resolve().parents[3] / "docs" / "torch.md"


def table():
    """{event: {call: what the page says}}."""
    part = PAGE.read_text(encoding="utf-8").partition("### What gloo does")[2]
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in part.splitlines() if line.startswith("|") and not line.startswith("|---")
    ]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[1:]}


def measured(event, call):
    given = Gloo(event=event, victim=1, deferred=event == "swapped", calls=(call, call))
    outcome = run(Plan(scenario=gloo.name, params=given, ranks=3), scenario=gloo)
    return " ".join(sorted({found.kind for found in outcome.findings})) or "fine"


def test_the_table_has_every_event():
    events = re.findall(r"'(\w+)'", str(Gloo.__annotations__["event"]))
    assert set(table()) == set(events) - {"none"}


@pytest.mark.parametrize(("event", "call"), [
    ("other_op", "all_reduce"), ("other_dtype", "all_to_all"), ("swapped", "all_gather"),
    ("other_size", "gather"),
])
def test_some_cells_are_what_gloo_does(event, call):
    assert table()[event][call] == measured(event, call)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("event", sorted(table()))
def test_every_cell_is_what_gloo_does(event):
    told = {call: what for call, what in table()[event].items() if what != "-"}
    assert told == {call: measured(event, call) for call in told}
