"""The guide's probes as `rankfault bench store` prints them."""

import os

import pytest

from harness import UsageError, registry
from systems.checkups import store_probes
from systems.checkups.store_probes import block_ids, measure


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(store_probes, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(store_probes, "lookup_ms", lambda store: store.lookup([]) == [] and 1.234)


@pytest.mark.parametrize("pipeline", [None, "Posix", "Cache|Posix"])
@pytest.mark.parametrize("direct", [False, True])
def test_three_figures_and_nothing_left_behind(tmp_path, pipeline, direct):
    rows = measure(path=tmp_path, pipeline=pipeline, direct=direct)
    assert [(row["name"].split()[0], row["unit"]) for row in rows] == [
        ("lookup", "ms"), ("dump", "MB/s"), ("load", "MB/s"),
    ]  # fmt: skip
    assert (rows[0]["value"], rows[0]["met"]) == (1.23, True)
    assert all(row["value"] > 0 for row in rows)
    assert os.listdir(tmp_path) == []


def test_wrong_options_are_told_in_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"bench store: store_pipeline: given 'Foo'.*nearest: 'Posix'"):
        measure(pipeline="Foo")
    with pytest.raises(UsageError, match=r"bench store: .*/none: No such file"):
        measure(path=tmp_path / "none")


def test_ids_are_a_chain_of_contents():
    assert block_ids(3) == block_ids(3)
    assert block_ids(5)[:3] == block_ids(3)
    assert len({*block_ids(3), *block_ids(3, "other")}) == 6
    assert all(len(one) == 16 for one in block_ids(3))


def test_the_command_line_finds_them():
    assert registry.benches()["store"].measure is measure
    assert "store" in registry.doctors()
