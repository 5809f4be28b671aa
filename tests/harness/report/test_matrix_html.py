"""The matrix as a page: well-formed, self-contained, escaped, what is wrong first."""

import re
from html.parser import HTMLParser

import msgspec

from harness.matrix import Row
from harness.report.matrix_html import page
from harness.trial import Shrunk

SHRUNK = Shrunk(
    finding="deadlock/cycle", from_ranks=4, ranks=2, deviations=1, proven=False, why='"a" & <b>',
    token="rf1:abc",
)
CAUGHT = Row(
    kind="fault", scenario="s.one", name="<script>alert(1)</script>", status="caught",
    root_seeds=(0, 1), plans_max=9, found={"deadlock/cycle": 1, "exceptions/a<b": 2}, plans=(1, 2),
    median=1.5, percentile95=2, smallest_ranks=2, shrunk=SHRUNK,
)
SURVIVOR = msgspec.structs.replace(
    CAUGHT, name="late", status="survived", reason="missed <all>", found={}, missed=(0, 1), shrunk=None,
    smallest_ranks=None,
)
EQUIVALENT = Row(
    kind="equivalent", scenario="s.one", name="same", status="equivalent",
    declared=("equivalent: a & b",), plans_run=10, fired={"same": 10},
)
TWIN = Row(
    kind="twin", scenario="s.one", name="", status="clean", plans_run=1000, distinct_runs=900,
    fired={"crash": 3},
)
NOT_RUN = Row(kind="twin", scenario="s.two", name="", status="not_run", reason="stopped & gone")
ROWS = [TWIN, EQUIVALENT, CAUGHT, SURVIVOR, NOT_RUN]
VOID = {"meta", "br"}


class Checked(HTMLParser):
    """Every element closes in order; text and attributes are kept."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


def checked(rows):
    found = Checked()
    found.feed(page(rows))
    found.close()
    assert found.open == []
    return found


def test_the_page_is_well_formed_and_needs_nothing_else():
    for rows in (ROWS, [TWIN], [NOT_RUN], []):
        found = checked(rows)
        assert not {"script", "link", "img", "iframe"} & set(found.tags)
        assert not [name for name, _ in found.attributes if name in ("src", "href", "onclick")]
        assert not re.search(r"https?:|url\(|@import", page(rows))


def test_everything_is_escaped():
    found = checked(ROWS)
    text = " ".join(found.text)
    assert "<script>alert(1)</script>" in text
    assert "exceptions/a<b" in text
    assert "missed <all>" in text
    assert ("title", '"a" & <b>') in found.attributes


def test_what_is_wrong_comes_first():
    text = page(ROWS)
    places = [
        text.index(part)
        for part in (
            "Survivors: 1 · Not run: 1", "Survivors (1)", "rankfault hunt s.one --fault late",
            "Not run (1)", "Summary", "Planted bugs", "Declared equivalents", "Twins",
        )
    ]
    assert places == sorted(places)
    assert "All caught, no false alarm" not in text
    assert "All caught, no false alarm" in page([TWIN, CAUGHT])


def test_a_finding_of_some_root_seeds_only_says_so():
    text = " ".join("".join(checked([CAUGHT]).text).split())
    assert "deadlock/cycle (1 of 2)" in text
    assert "2+1?" in text
