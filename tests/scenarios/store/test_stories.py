"""Each cause of a troubleshooting story is told apart by the finding, whatever is drawn."""

import logging

import pytest

from harness import Plan, Verdict, likely, plans, registry, run
from harness.hunt import Order, hunt
from harness.strategy import drawn

CAUSES = {
    "unknown_connector": {"misspelt": "misspelt", "never_registered": "never_registered"},
    "lookup_misses": {
        "path_absent": "path_absent", "other_path": "other_path", "hash_seed": "ids_differ",
        "never_committed": "never_committed", "committed_false": "committed_false",
    },
    "load_hangs": {
        "worker_died": "worker_died", "lost_task": "lost_task", "endless_io": "endless_io",
    },
    "corrupted_data": {
        "misaligned": "misaligned", "partial_write": "partly_written", "wrong_offset": "wrong_offset",
        "premature_reuse": "source_reused",
    },
}
EVERY = [(story, bug) for story, causes in CAUSES.items() for bug in causes]


def scenario_of(story):
    return registry.find(f"store.story_{story}")


def found(story, bug):
    scenario = scenario_of(story)
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=scenario.ranks[0], bug=bug)
    outcome = run(plan, scenario=scenario)
    assert outcome.notes == ()
    return outcome.findings


def test_every_cause_is_listed():
    assert all(set(scenario_of(story).mutants) == set(causes) for story, causes in CAUSES.items())


@pytest.mark.parametrize(("story", "bug"), EVERY)
def test_the_finding_names_the_cause_whatever_is_drawn(story, bug):
    scenario, row = scenario_of(story), CAUSES[story][bug]
    strategy = plans(scenario, bug=bug, faults=False, schedule=False)
    for plan in drawn(strategy, 20, story, bug):
        first, *more = run(plan, scenario=scenario).findings
        assert (first.cause, first.remedy) == likely("store/x", row), plan
        assert [str(site) for site in first.sites] == [f"story:{row}#0"]
        assert more == []


@pytest.mark.parametrize("story", CAUSES)
def test_without_a_cause_there_is_no_finding(story):
    result = hunt(Order(scenario_of(story), 1, plans_max=40))
    assert result.finding is None
    assert result.statistics.notes == {}


def test_the_causes_of_one_story_differ():
    for causes in CAUSES.values():
        texts = [likely("store/x", row) for row in causes.values()]
        assert len(set(texts)) == len(texts)


def test_an_unknown_connector_shows_the_names_that_are_known():
    (finding,) = found("unknown_connector", "misspelt")
    assert "Unknown connector: PrefxStore" in finding.message
    assert finding.evidence[1] == "'PrefxStore' and 'PrefixStore' differ by little"
    (finding,) = found("unknown_connector", "never_registered")
    assert "PrefixStore" not in finding.evidence[0]


def test_a_miss_shows_what_the_folder_holds():
    (finding,) = found("lookup_misses", "never_committed")
    assert finding.message == "rank 1 misses 3 of 3 blocks that rank 0 dumped"
    assert finding.evidence[0] == "/kv holds 0 blocks and 3 temporary files"
    (finding,) = found("lookup_misses", "committed_false")
    assert finding.evidence[0] == "/kv holds 0 blocks and 0 temporary files"
    assert finding.evidence[1] == "commit said [0, 0, 0], and nothing of the blocks is left"
    (finding,) = found("lookup_misses", "hash_seed")
    assert finding.evidence[1] == "/kv holds 3 blocks and 0 temporary files"
    assert finding.rank == 1


def test_a_load_that_hangs_shows_the_workers_and_the_log(caplog):
    with caplog.at_level(logging.WARNING):
        (finding,) = found("load_hangs", "endless_io")
    assert finding.evidence[0] == "a worker is inside pread at byte 0 since 30 s"
    assert finding.evidence[-1] == "its log: [UCM.Store] load: task_id=2 has not finished"
    assert "wait gives -50010, check says that 3 blocks are left" in finding.message
    assert caplog.records == []
    (finding,) = found("load_hangs", "lost_task")
    assert finding.evidence[1:3] == ("1 workers left, 0 jobs queued", "1 jobs taken, 1 ended")


def test_corrupted_data_shows_both_pointers_and_the_largest_difference():
    (finding,) = found("corrupted_data", "misaligned")
    assert finding.message.endswith("shifted: its own bytes come 4 bytes too late")
    assert finding.evidence[1] == "8164 of 8192 bytes differ, by 254 at most"
    assert finding.evidence[2] == "pointer % 512: source 508, destination 0"
    (finding,) = found("corrupted_data", "premature_reuse")
    assert "what the source was given next" in finding.message
    assert finding.consequences != ()


def test_the_same_plan_gives_the_same_finding_again():
    for story, bug in EVERY:
        assert found(story, bug) == found(story, bug)
    assert run(
        Plan(scenario="x", params=scenario_of("load_hangs").params(), ranks=1),
        scenario=scenario_of("load_hangs"),
    ).verdict is Verdict.PASS
