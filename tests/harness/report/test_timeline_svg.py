"""The timeline as a picture: well-formed, complete, with nothing outside it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import torch

from harness import Hold, Plan, registry, run, scenario
from harness.finding import Finding
from harness.report.timeline import picture
from harness.report.timeline_svg import timeline_svg

SVG = "{http://www.w3.org/2000/svg}"


LATE = (Hold(0),)


def outcome(name="collectives.put_get", bug="notify_overtakes_put", ranks=2, schedule=LATE):
    found = registry.find(name)
    plan = Plan(scenario=name, params=found.params(), ranks=ranks, bug=bug, schedule=schedule)
    return run(plan, scenario=found)


def drawn(seen, **more):
    return ElementTree.fromstring(timeline_svg(seen.run, seen.findings[0], **more))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("name", "bug", "ranks", "schedule"),
    [
        ("collectives.put_get", "notify_overtakes_put", 2, (Hold(0),)),
        ("collectives.barrier", "set_for_add", 3, ()),
        ("collectives.two_lanes", "credit_not_awaited", 2, ()),
        ("collectives.hello_rank", "device_id_as_rank", 1, ()),
        ("collectives.allreduce_mesh", "missing_barrier", 8, ()),
    ],
)
def test_every_event_that_the_text_draws_is_in_it(name, bug, ranks, schedule):
    seen = outcome(name, bug, ranks, schedule)
    root = drawn(seen)
    said = texts(root)
    what = picture(seen.run, seen.findings[0]) if seen.run.raw else None
    for index in what.chosen if what else ():
        assert f"{index:>4}" in said
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("x")) <= width
        assert 0 <= float(element.get("y")) <= height
    for element in root.iter(f"{SVG}line"):
        assert float(element.get("y2")) <= height


def test_the_finding_is_red_and_the_missing_edge_is_a_cross():
    seen = outcome()
    root = drawn(seen)
    red = [e.text for e in root.iter(f"{SVG}text") if e.get("fill") == "#c62828"]
    assert any("is delivered only at" in text for text in red)
    assert {f"{index:>4}" for index in seen.findings[0].events} <= set(red)
    assert [e for e in root.iter(f"{SVG}path") if e.get("stroke") == "#c62828"]


def test_an_arrow_leads_from_the_issue_to_the_delivery():
    seen = outcome(bug="put_without_wait", schedule=(Hold(0),))
    root = drawn(seen, rows_max=None)
    arrows = [e for e in root.iter(f"{SVG}line") if e.get("marker-end")]
    slanted = [e for e in arrows if float(e.get("y1")) < float(e.get("y2"))]
    level = [e for e in arrows if float(e.get("y1")) == float(e.get("y2"))]
    assert len(slanted) > 3
    assert len(slanted) + len(level) == len(arrows)
    assert {e.get("marker-end") for e in arrows} <= {"url(#red)", "url(#blue)"}


def test_text_is_escaped_and_nothing_comes_from_elsewhere():
    @scenario(reference=lambda size: [None] * size, ranks=(1, 8))
    def odd(rank):
        cell = rank.window("a<b>&'\"", 1, torch.int32)
        rank.wait(cell, 0, 1)

    seen = run(Plan(scenario="odd", params=odd.params(), ranks=1), scenario=odd)
    picture_text = timeline_svg(seen.run, seen.findings[0])
    assert any("a<b>&'\"" in (text or "") for text in texts(ElementTree.fromstring(picture_text)))
    assert picture_text.count("http") == 1  # the name space


def test_a_run_without_events():
    seen = outcome()
    seen.run.raw.clear()
    finding = Finding(checker="exceptions", kind="x", rank=-1, message="")
    assert "no rank had begun" in timeline_svg(seen.run, finding)
