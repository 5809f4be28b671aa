"""Defects planted by hand in the store: a hunt finds each and names what the record proves."""

import contextlib

import pytest

from harness import registry
from harness.diagnosis.table import BECAUSE, LIKELY
from harness.hunt import Order, hunt
from systems.store import blockfile, capacity, header, pool, posix
from systems.store.capacity import Sweep

ROOT_SEED = 77123
collect = Sweep._collect


def fsync_passed_over(self, fd):
    with contextlib.suppress(OSError):
        self._disk.fsync(fd)


def folders_above_not_durable(self, block_id):
    self._disk.fsync_dir(self._folder(block_id))


def lookup_takes_errors_for_misses(self, block_id):
    begin = self._folder(block_id) + block_id.hex()
    try:
        return all(self._disk.exists(f"{begin}{end}.kv") for end in self._ends)
    except OSError:
        return False


def rest_is_asked_for_at_the_begin(self, move, fd, view, at, least):
    done = 0
    while done < least and (count := move(fd, view[done:], at)) > 0:
        done += count
    return done


def any_shard_is_near(self, key):
    node = next((one for one in self._nodes.values() if one.key[0] == key[0]), None)
    if node is not None:
        node.holders += 1
    return node


# Where, what and by what, in which scenario: the finding's kind, and the row of its cause.
PLANTED = {
    "fsync": (blockfile.Files, "_make_durable", fsync_passed_over, "restart", "lost_block", "told_good"),
    "lookup": (
        posix.PosixStage, "visible", lookup_takes_errors_for_misses, "shards", "lost_block", "told_good"
    ),
    "anchor": (
        posix.PosixStage, "_anchor", folders_above_not_durable, "restart", "lost_block", "not_durable"
    ),
    "rest": (
        blockfile.Files, "_all", rest_is_asked_for_at_the_begin, "round_trip", "lost_block",
        "found_damaged",
    ),
    "shard": (
        pool.PrivatePool, "_held", any_shard_is_near, "shards", "silent_corruption", "shard_left_out"
    ),
    "checksum": (
        header, "require_intact", lambda header, data: None, "round_trip", "silent_corruption",
        "not_verified",
    ),
    "header": (
        header, "require_header_intact", lambda page, begin: None, "round_trip", "refused_call",
        "not_verified",
    ),
    "permit": (
        posix.PosixStage, "permit", lambda self, block_id, shard: None, "shards",
        "uncommitted_visible", "",
    ),
    "full": (capacity.Sweep, "over", lambda self, added: False, "eviction", "over_capacity", ""),
    "empty": (
        capacity.Sweep, "_collect", lambda self, spared: collect(self, set()), "eviction",
        "lost_block", "",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found_and_its_cause_named(name, monkeypatch):
    where, what, instead, scenario, kind, because = PLANTED[name]
    monkeypatch.setattr(where, what, instead)
    found = hunt(Order(registry.find(f"store.{scenario}"), ROOT_SEED, plans_max=100))
    assert not found.statistics.notes
    assert found.finding is not None
    finding = found.finding
    assert f"{finding.checker}/{finding.kind}" == f"store/{kind}"
    due = BECAUSE[because] if because else LIKELY[f"store/{kind}"]
    assert (finding.cause, finding.remedy) == due, finding
