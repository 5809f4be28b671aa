"""What stands in dfx_outputs/: task graph, swimlane and memory of each dispatch of each device."""

from __future__ import annotations

import json

import torch

from harness import Plan, Scenario, run
from harness.frontends.pypto.dfx import SCHEMA, Note, dfx_files


def noted(rank, what, number=0, name="", **more):
    rank._state.notes.append(Note(len(rank._events), what, number, name, **more))


def busy(rank, flag, waits):
    noted(rank, "dispatch", name="chip")
    noted(rank, "submit", 1, "publisher")
    noted(rank, "submit", 2, "consumer", deps=(1,))
    noted(rank, "heap", name="tile", amount=256)
    noted(rank, "start", 1, lane=0)
    rank.notify(flag, 1 - rank.index, 0, 1)
    noted(rank, "end", 1)
    noted(rank, "heap", name="tile", amount=-256)
    if waits:
        noted(rank, "start", 2, lane=0)
        rank.wait(flag, 0, waits)
        noted(rank, "end", 2)
    noted(rank, "end", 0)
    noted(rank, "dispatch", name="again")
    noted(rank, "end", 0)


def files(waits):
    def host(world, params):
        flag = world.alloc((4,), torch.int32, name="flag")
        for r in range(world.size):
            world.dispatch(busy, flag, waits, device=r)

    made = Scenario(name="noted", host=host, ranks=(2, 2))
    outcome = run(Plan(scenario="noted", params=made.params(), ranks=2), scenario=made)
    return dfx_files(outcome.run)


def test_every_dispatch_has_its_folder_and_every_task_its_place():
    made = files(1)
    assert sorted({path.rpartition("/")[0] for path in made}) == [
        f"rank{r}/d{k}{more}" for r in (0, 1) for k in (0, 1) for more in ("", "/scope_stats")
    ]
    deps = json.loads(made["rank1/d0/deps.json"])
    assert deps["schema"] == SCHEMA
    assert (deps["rank"], deps["dispatch"], deps["name"]) == (1, 0, "chip")
    assert [t["name"] for t in deps["tasks"]] == ["chip", "publisher", "consumer"]
    assert deps["edges"] == [[1, 2]]
    assert json.loads(made["rank1/d1/deps.json"])["name"] == "again"


def test_a_wait_is_as_long_as_it_waited():
    lanes = json.loads(files(1)["rank0/d0/chip_swimlane_records.json"])
    notify, wait = lanes["operations"]
    assert (notify["operation"], notify["peer"], notify["memory"]) == ("notify", 1, "flag")
    assert wait["operation"] == "wait"
    assert wait["start"] == notify["end"] + 1 < wait["end"]
    assert "test_dfx.py" in wait["line"]
    assert all(t["end"] >= t["start"] >= 0 for t in lanes["tasks"])


def test_high_water_marks_of_windows_and_heap():
    lines = [json.loads(one) for one in files(1)["rank0/d0/scope_stats/scope_stats.jsonl"].splitlines()]
    assert [one["scope"] for one in lines] == ["chip", "publisher", "consumer", "high water"]
    assert lines[-1] == {
        "scope": "high water", "windows_bytes": 16, "heap_bytes": 256, "tasks_open": 3,
    }
    later = files(1)["rank0/d1/scope_stats/scope_stats.jsonl"].splitlines()[-1]
    assert json.loads(later)["heap_bytes"] == 0


def test_a_task_that_never_starts_waits_and_one_that_blocks_never_ends():
    started = json.loads(files(2)["rank0/d0/deps.json"])
    assert [t["state"] for t in started["tasks"]] == ["started", "ended", "started"]
    waiting = json.loads(files(0)["rank0/d0/deps.json"])
    assert [t["state"] for t in waiting["tasks"]] == ["ended", "ended", "waits"]


def test_a_run_that_notes_nothing_leaves_no_file():
    made = Scenario(name="silent", host=lambda world, params: None, ranks=(1, 1))
    outcome = run(Plan(scenario="silent", params=made.params(), ranks=1), scenario=made)
    assert dfx_files(outcome.run) == {}
