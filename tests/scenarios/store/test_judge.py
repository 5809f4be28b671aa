"""Every kind of the checker `store`, shown by a history of a few calls, and a history that lacks it."""

import os

import pytest

from faults import environment, storage
from harness.diagnosis.table import LIKELY
from harness.record import Blocked, Run
from scenarios.store.clients import new_disk
from scenarios.store.history import Call, History
from scenarios.store.judge import StoreChecker
from scenarios.store.patterns import pattern
from systems.store.errors import BAD_PARAMETER, CANCELLED, DAMAGED, NOT_FOUND, OS_ERROR, TIMEOUT

EIO = storage.IoError(rank=0)
ZEROS = {0: pattern(b"12345678", bytes(8))}
FLIPPED = {0: pattern(b"12345678", b"02345678")}


def call(kind, blocks, began, *, codes=None, **known):
    """A call of rank 0 that lies between events `began` and `began` + 2, and went well by default."""
    good = 0 if kind in ("dump", "load", "commit") else 1
    codes = (good,) * len(blocks) if codes is None else codes
    flags = known.pop("flags", (True,) * len(blocks) if kind == "commit" else ())
    known = {"rank": 0, "opened": 1, "ended": began + 2, **known}
    return Call(kind=kind, blocks=tuple(blocks), codes=codes, flags=flags, began=began, **known)


def stored(*blocks, shard=0):
    """The calls that make blocks visible to everybody from event 5 on."""
    return [call("dump", blocks, 0, shard=shard), call("commit", blocks, 3)]


def at(place, kind="disk_pread"):
    """A fault at an event, and the kind of operation that it hits."""
    return place, kind


def found(calls, faults=(), *, blocked=(), dead=(), **history):
    """The kinds of findings. faults: by place, see `at`."""
    raw = [(0, f"store_{one}", -1, 0, 0, 0, "", -1, None, 0) for one in ("open",) * 60]
    for number, (place, kind, _) in enumerate(faults):
        raw[place - 1] = (0, kind, -1, 0, 0, 0, "/store/x", -1, None, 0)
        raw[place] = (0, "fault", -1, 0, number, 0, "", -1, None, 0)
    given = History(history.pop("disk", None) or new_disk(), calls=list(calls), **history)
    run = Run(
        ranks=1, lanes=[(0, 0)], raw=raw, memory=list, guards_intact=True, results=[None],
        observed={"history": given}, expected=None, failures=[], blocked=list(blocked),
        dead=list(dead), peers_lost=[], fired=[1] * len(faults), deviations_applied=0, calls=[[]],
        points=0, operations=0, ended="returned", faults=tuple(fault for _, _, fault in faults),
    )
    return [finding.kind for finding in StoreChecker().check(run)]


def left_behind():
    disk = new_disk()
    disk.makedirs("/store")
    disk.close(disk.open("/store/one.tmp", os.O_CREAT | os.O_WRONLY))
    return disk


def holding(blocks):
    """A disk with blocks of ten bytes."""
    disk = new_disk()
    disk.makedirs("/store")
    for number in range(blocks):
        fd = disk.open(f"/store/{number}.kv", os.O_CREAT | os.O_WRONLY)
        disk.pwrite(fd, memoryview(bytes(10)), 0)
        disk.close(fd)
    return disk


OPENED = [call("open", (), 0)]
PUT = stored(0, 1)
ALONE = stored(0)
CUT = (DAMAGED, DAMAGED)

# What shows each kind, and what is as near to it as possible and right.
CASES = {
    "silent_corruption": [
        (1, {"calls": [*PUT, call("load", [0], 6, wrong=ZEROS)]}),
        (0, {"calls": [*PUT, call("load", [0], 6)]}),
        (1, {"calls": [*PUT, call("load", [0], 6, wrong=FLIPPED)],
             "faults": [(*at(7), storage.BitFlip(rank=0))]}),
    ],
    "uncommitted_visible": [
        (1, {"calls": [call("dump", [0], 0), call("lookup", [0], 3)]}),
        (0, {"calls": [*PUT, call("lookup", [0], 6)]}),
        (0, {"calls": [call("dump", [0], 0), call("load", [0], 3)]}),
        (1, {"calls": [call("dump", [0], 0), call("load", [0], 3, rank=1)]}),
        (1, {"calls": [call("dump", [0], 0), call("commit", [0], 3, flags=(False,)),
                       call("load", [0], 6)]}),
        (0, {"calls": [call("dump", [0], 0), call("commit", [0], 3, flags=(False,)),
                       call("dump", [0], 6), call("load", [0], 9)]}),
        (0, {"calls": [call("dump", [0], 0), call("commit", [0], 3, flags=(False,), codes=(OS_ERROR,)),
                       call("load", [0], 6)], "faults": [(*at(4), EIO)]}),
        (1, {"calls": [call("dump", [0], 0), call("commit", [0], 3), call("lookup", [0], 6)],
             "shards": 2}),
        (1, {"calls": [*PUT, call("prefix", [0, 2], 6)]}),
        (0, {"calls": [*PUT, call("prefix", [0, 2], 6, codes=(1, 0))]}),
    ],
    "lost_block": [
        (1, {"calls": [*PUT, call("lookup", [0], 6, codes=(0,))]}),
        (0, {"calls": [*PUT, call("lookup", [0], 4, codes=(0,))]}),
        (0, {"calls": [*PUT, call("lookup", [0], 6, codes=(0,))], "evicts": True}),
        (0, {"calls": [*ALONE, *stored(1), call("lookup", [0], 9, codes=(0,))], "evicts": True}),
        (1, {"calls": [*ALONE, call("lookup", [0], 6, codes=(0,))], "evicts": True}),
        (1, {"calls": [*ALONE, call("load", [0], 6, codes=(NOT_FOUND,))], "evicts": True,
             "tolerated": frozenset((NOT_FOUND,))}),
        (0, {"calls": [*ALONE, call("commit", [1], 4, rank=1, ended=-1),
                       call("lookup", [0], 6, codes=(0,))], "evicts": True}),
        (1, {"calls": [*PUT, call("load", [0], 6, codes=(DAMAGED,))], "evicts": True}),
        (1, {"calls": [*PUT, call("prefix", [0, 1], 6, codes=(1, 0))]}),
        (0, {"calls": [*PUT, call("prefix", [2, 1], 6, codes=(0, 0))]}),
        (0, {"calls": [*PUT, call("load", [0], 6, codes=(OS_ERROR,))], "faults": [(*at(7), EIO)]}),
        (1, {"calls": [*PUT, call("load", [0], 9, codes=(OS_ERROR,))], "faults": [(*at(7), EIO)]}),
        (1, {"calls": [*PUT, call("load", [0], 6, codes=(DAMAGED,))],
             "faults": [(*at(7), storage.ShortRead(rank=0))]}),
        (1, {"calls": [*PUT, call("load", [0], 6, codes=(-1,))],
             "faults": [(*at(7, "disk_utime"), EIO)]}),
        (0, {"calls": [*PUT, call("load", [0], 6, codes=(DAMAGED,))],
             "faults": [(*at(2), storage.LostWrite(rank=0))]}),
        (0, {"calls": [*PUT, call("lookup", [0], 6, codes=(0,))],
             "faults": [(*at(2), storage.Evicted(rank=0))]}),
        (0, {"calls": [*PUT, call("lookup", [0], 9, codes=(0,))], "forgotten": 8}),
    ],
    "over_capacity": [
        (1, {"calls": OPENED, "disk": holding(4), "most": 39}),
        (0, {"calls": OPENED, "disk": holding(4), "most": 40}),
        (0, {"calls": OPENED, "disk": holding(4)}),
        (0, {"calls": OPENED, "disk": holding(4), "most": 39, "faults": [(*at(7, "disk_unlink"), EIO)]}),
        (0, {"calls": OPENED, "disk": holding(4), "most": 39, "dead": [0]}),
    ],
    "hang": [
        (1, {"calls": [call("dump", [0], 0, codes=(TIMEOUT,))]}),
        (0, {"calls": [call("dump", [0], 0, codes=(TIMEOUT,))],
             "faults": [(*at(1), storage.SlowIo(rank=0))]}),
    ],
    "refused_call": [
        (1, {"calls": [call("load", [0], 0, codes=(BAD_PARAMETER,))]}),
        (1, {"calls": [call("dump", [0], 0, codes=(BAD_PARAMETER,), error="BadParameter")]}),
        (0, {"calls": PUT}),
    ],
    "unexpected_error": [
        (1, {"calls": [call("dump", [0], 0, codes=(OS_ERROR,))]}),
        (0, {"calls": [call("dump", [0], 0, codes=(OS_ERROR,))], "faults": [(*at(1), EIO)]}),
        (1, {"calls": [call("dump", [0], 0, codes=(CANCELLED,))]}),
        (0, {"calls": [call("dump", [0], 0, codes=(CANCELLED,))], "tolerated": frozenset((CANCELLED,))}),
        (0, {"calls": [call("dump", [0], 0, codes=(CANCELLED,), cancelled=True)]}),
        (0, {"calls": [call("load", [0], 0, codes=(NOT_FOUND,))]}),
        (1, {"calls": [call("dump", [0], 0), call("load", [0], 3, codes=(NOT_FOUND,))]}),
        (1, {"calls": [call("open", (), 0, error="StorageUnusable")]}),
    ],
    "collateral": [
        (1, {"calls": [call("dump", [0, 1], 0, codes=(OS_ERROR,) * 2)], "faults": [(*at(1), EIO)]}),
        (0, {"calls": [call("dump", [0, 1], 0, codes=(OS_ERROR, 0))], "faults": [(*at(1), EIO)]}),
        (0, {"calls": [call("dump", [0, 1], 0, codes=(OS_ERROR, CANCELLED), cancelled=True)],
             "faults": [(*at(1), EIO)]}),
        (1, {"calls": [*PUT, call("load", [0, 1], 6, codes=CUT)],
             "faults": [(*at(7), storage.Truncation(rank=0))]}),
        (0, {"calls": [*PUT, call("load", [0, 1], 6, codes=CUT)],
             "faults": [(*at(7), storage.SwappedFiles(rank=0))]}),
        (0, {"calls": [*PUT, call("load", [0, 1], 6, codes=CUT)],
             "faults": [(*at(7), EIO), (*at(9), EIO)]}),
    ],
    "residue": [
        (1, {"calls": OPENED, "closed": 1, "disk": left_behind()}),
        (0, {"calls": OPENED, "closed": 0, "disk": left_behind()}),
        (0, {"calls": OPENED, "closed": 1}),
        (0, {"calls": OPENED, "closed": 1, "disk": left_behind(), "cuts": [1]}),
        (0, {"calls": OPENED, "closed": 1, "disk": left_behind(), "dead": [0]}),
        (0, {"calls": OPENED, "closed": 1, "disk": left_behind(),
             "faults": [(*at(1, "disk_unlink"), EIO)]}),
        (1, {"calls": OPENED, "closed": 1, "disk": left_behind(), "faults": [(*at(1), EIO)]}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shows", "case"),
    [(kind, *one) for kind, several in CASES.items() for one in several],
)
def test_a_kind_is_told_first_where_it_is_due_and_nothing_otherwise(kind, shows, case):
    assert found(**case)[: shows or None] == [kind] * shows


def test_every_kind_has_a_history_that_shows_it_and_one_that_does_not():
    kinds = {name.removeprefix("store/") for name in LIKELY if name.startswith("store/")}
    others = {"phantom_block", "crash", "misuse", "unknown_connector", "lookup_misses", "load_hangs"}
    assert set(CASES) == kinds - others - {"torn_block"}  # of black-box runs, stories and crashes
    for several in CASES.values():
        assert {shows for shows, _ in several} == {0, 1}


def test_a_call_without_an_answer_is_not_judged():
    assert found([call("load", [0], 0, codes=(OS_ERROR,), ended=-1)]) == []


def test_a_blocked_world_is_the_deadlock_checkers():
    lane = Blocked(0, 0, "wait", 0, 0, 1, 0, ">=", None, 0)
    assert found([call("dump", [0], 0, codes=(TIMEOUT,))], blocked=[lane]) == []


def test_the_worst_comes_first():
    calls = [*PUT, call("load", [0, 1], 6, codes=(0, DAMAGED), wrong=ZEROS)]
    assert found(calls) == ["silent_corruption", "lost_block", "unexpected_error"]


def test_other_programs_are_none_of_its_business():
    run = Run(
        ranks=1, lanes=[(0, 0)], raw=[], memory=list, guards_intact=True, results=[None],
        observed={"result": []}, expected=None, failures=[], blocked=[], dead=[], peers_lost=[],
        fired=[], deviations_applied=0, calls=[[]], points=0, operations=0, ended="returned",
    )
    assert list(StoreChecker().check(run)) == []


def test_a_crash_that_fired_excuses_residue():
    crash = environment.Crash(rank=0)
    assert found(OPENED, [(*at(1), crash)], closed=1, disk=left_behind()) == []
