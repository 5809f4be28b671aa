"""What a client did wrong is told from what its calls passed: each mistake, and what is next to it."""

import pytest

from harness import registry
from harness.diagnosis.table import BECAUSE
from harness.hunt import Order, hunt
from scenarios.store.clients import new_disk
from scenarios.store.history import Call, History, Passed
from scenarios.store.mistakes import mistake

A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
MEANT = Passed((A, B), 0, 80, "int32", "cpu")

# By fault of a client: the rows that its finding may name, in every scenario.
NAMED = {
    "duplicate_id": {"id_of_another"},
    "empty_ids": {"ids_missing"},
    "hash_seed": {"ids_differ", "ids_changed"},
    "missing_task_wait": {"not_waited"},
    "non_contiguous_buffer": {"not_contiguous"},
    "reused_buffer": {"source_reused", "not_waited"},
    "small_buffer": {"other_length"},
    "wrong_buffer_dtype": {"other_dtype"},
    "wrong_device": {"unreachable"},
    "wrong_id_length": {"id_length"},
    "wrong_shard": {"other_shard"},
}


def call(kind, began, *, rank=0, given=MEANT, **known):
    return Call(rank, kind, (0, 1), meant=MEANT, given=given, began=began, ended=began + 2, **known)


def named(*calls, block=0):
    """The row for `block` in the last of the calls, or None."""
    found = mistake(History(new_disk(), calls=list(calls)), calls[-1], block)
    return found and found.because


@pytest.mark.parametrize(
    ("given", "block", "because"),
    [
        (MEANT, 0, None),
        (MEANT._replace(ids=(A, A)), 1, "id_of_another"),
        (MEANT._replace(ids=(A, A)), 0, None),  # of the other block nothing is wrong
        (MEANT._replace(ids=()), 0, "ids_missing"),
        (MEANT._replace(ids=(A, B + b"x")), 0, "id_length"),
        (MEANT._replace(shard=1), 0, "other_shard"),
        (MEANT._replace(nbytes=76), 0, "other_length"),
        (MEANT._replace(dtype="float32"), 0, "other_dtype"),
        (MEANT._replace(device="meta"), 0, "unreachable"),
        (MEANT._replace(contiguous=False), 0, "not_contiguous"),
    ],
)
def test_what_differs_from_what_was_meant(given, block, because):
    wrong = call("dump", 0, given=given)
    assert named(wrong, block=block) == because
    assert named(wrong, call("load", 3), block=block) == because  # a load of what was so dumped
    assert named(call("load", 0, given=given), call("load", 3), block=block) is None


def test_ids_are_compared_with_those_of_dumps_and_commits():
    seeded = MEANT._replace(ids=(C, B))
    for kind in ("dump", "commit"):
        assert named(call(kind, 0), call("lookup", 3, rank=1, given=seeded)) == "ids_differ"
        assert named(call(kind, 0), call("lookup", 3, given=seeded)) == "ids_changed"
        assert named(call(kind, 0), call("lookup", 3, rank=1, given=seeded), block=1) is None
        assert named(call(kind, 0, given=seeded), call("lookup", 3, rank=1, given=seeded)) is None
    assert named(call("lookup", 0), call("lookup", 3, rank=1, given=seeded)) is None


def test_who_goes_on_too_early():
    wrote = call("dump", 0, early="wrote its source", early_at=2)
    assert named(wrote, call("load", 3)) == "source_reused"
    assert named(call("dump", 0, early="went on", early_at=2), call("commit", 3)) == "not_waited"
    assert named(call("load", 0, early="read its destination", early_at=2)) == "not_waited"
    assert named(call("load", 0, early="read its destination", early_at=2), call("load", 3)) is None


def test_what_comes_later_is_no_cause():
    later = call("dump", 9, given=MEANT._replace(shard=1))
    first = call("load", 0)
    assert mistake(History(new_disk(), calls=[first, later]), first, 0) is None


@pytest.mark.parametrize(
    ("fault", "scenario"),
    [
        *((fault, "round_trip") for fault in NAMED),
        *((fault, "shards") for fault in ("hash_seed", "wrong_shard", "missing_task_wait")),
        *((fault, "concurrent_clients") for fault in ("duplicate_id", "reused_buffer")),
    ],
)
def test_a_hunts_finding_names_the_mistake_and_proves_it(fault, scenario):
    found = hunt(Order(registry.find(f"store.{scenario}"), 5, plans_max=60, faults=(fault,)))
    assert found.finding is not None
    finding = found.finding
    rows = {row for row in BECAUSE if (finding.cause, finding.remedy) == BECAUSE[row]}
    assert rows <= NAMED[fault], finding
    assert rows, finding
    assert " of rank " in finding.evidence[0]
    assert "fired" not in finding.evidence[0]


@pytest.mark.parametrize(
    "bug", ["checksum_not_verified", "short_read_accepted", "returns_after_the_first_block"]
)
def test_a_bug_of_the_store_is_not_put_down_to_its_client(bug):
    scenario = registry.find("store.round_trip")
    found = hunt(Order(scenario, 5, plans_max=100, bug=bug))
    assert found.finding is not None
    client = {BECAUSE[row] for rows in NAMED.values() for row in rows}
    assert (found.finding.cause, found.finding.remedy) not in client
