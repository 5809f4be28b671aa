"""Row M of the delivery table: puts and gets that take effect in pieces."""

from __future__ import annotations

import msgspec
import pytest
import torch

from harness import AtomicType, Hold, Plan, Preempt, Visibility, run, scenario
from harness.fabric.execute import Job, execute
from harness.races.conflicts import Conflicts
from harness.run import explore
from harness.schedule import POS, RandomWalk
from harness.schedule.convert import deviations_of


def torn(program, size, ranks=2, *schedule, **job):
    def host(world):
        for index in range(world.size):
            world.dispatch(program, device=index)

    return execute(Job(ranks, host, schedule=schedule, torn=size, **job))


def pieces(record, *kinds):
    return [(raw[1], raw[4], raw[5]) for raw in record.raw if raw[1] in kinds]


def put_of(count, dtype=torch.float32, at=0, atomic=None):
    def program(rank):
        window = rank.window("w", 64, dtype, init="zero")
        if rank.index == 0:
            rank.put(window, 1, torch.arange(1, count + 1).to(dtype), at, atomic=atomic)
        rank.barrier()
        return rank.load(window, at, count).tolist()

    return program


@pytest.mark.parametrize(
    ("size", "count", "at", "expected"),
    [
        (4, 3, 0, [(0, 4), (4, 8), (8, 12)]),
        (4, 1, 0, [(0, 4)]),
        (8, 4, 1, [(4, 8), (8, 16), (16, 20)]),
        (64, 16, 0, [(0, 64)]),
        (64, 17, 0, [(0, 64), (64, 68)]),
        (64, 20, 8, [(32, 64), (64, 112)]),
        (4, 20, 0, [(0, 4), (4, 16), (16, 28), (28, 40), (40, 52), (52, 64), (64, 76), (76, 80)]),
    ],
)
def test_pieces_end_at_multiples_and_are_eight_at_most(size, count, at, expected):
    record = torn(put_of(count, at=at), size)
    found = pieces(record, "deliver_part", "deliver")
    assert [(lo, hi) for _, lo, hi in found] == expected
    assert [kind for kind, _, _ in found] == ["deliver_part"] * (len(expected) - 1) + ["deliver"]
    assert record.results[1] == [[float(value) for value in range(1, count + 1)]]


def test_whole_by_default():
    assert pieces(torn(put_of(20), 0), "deliver_part", "deliver") == [("deliver", 0, 80)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_an_atomic_put_never_tears_an_element(dtype):
    record = torn(put_of(3, dtype, atomic=AtomicType.Add), 4)
    found = pieces(record, "deliver_part", "deliver")
    assert [(lo, hi) for _, lo, hi in found] == [(0, 8), (8, 16), (16, 24)]
    assert record.results[1] == [[1, 2, 3]]


def half_and_half(rank):
    """Rank 1 polls the last element and then reads the first: whole puts keep that promise."""
    window = rank.window("w", 4, torch.float32, init="zero")
    if rank.index == 0:
        rank.put(window, 1, torch.full((4,), 5.0))
        return None
    while rank.load(window, 0, 1).item() != 5.0:
        pass
    return rank.load(window, 0, 4).tolist()


def test_a_reader_sees_the_first_piece_without_the_rest():
    assert torn(half_and_half, 0).results[1] == [[5.0] * 4]
    seen = set()
    for seed in range(30):
        record = torn(half_and_half, 8, chooser=RandomWalk(seed))
        seen.add(tuple(record.results[1][0]))
    assert seen == {(5.0, 5.0, 5.0, 5.0), (5.0, 5.0, 0.0, 0.0)}


def fetches(nbi):
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        into = rank.buffer(4, torch.float32)
        if rank.index == 0:
            rank.store(window, torch.ones(4))
            return None
        if nbi:
            rank.get_nbi(into, 0, window)
            rank.quiet()
        else:
            rank.get(into, 0, window)
        return rank.load(into, 0, 4).tolist()

    return program


@pytest.mark.parametrize("nbi", [False, True])
def test_gets_tear_where_they_read(nbi):
    record = torn(fetches(nbi), 8)
    assert pieces(record, "read_part", "read", "land") == [
        ("read_part", 0, 8), ("read", 8, 16), ("land", 0, 16)
    ]
    seen = {tuple(torn(fetches(nbi), 8, chooser=RandomWalk(s)).results[1][0]) for s in range(60)}
    assert seen == {(0.0,) * 4, (1.0,) * 4, (0.0, 0.0, 1.0, 1.0)}


def late_source(rank):
    window = rank.window("w", 4, torch.float32, init="zero")
    source = rank.buffer(4, torch.float32)
    if rank.index == 0:
        rank.store(source, torch.ones(4))
        rank.put_nbi(window, 1, source)
        rank.store(source, torch.full((4,), 2.0))
    rank.barrier()
    return rank.load(window, 0, 4).tolist()


def test_the_source_of_a_put_nbi_is_read_piece_by_piece():
    seen = {tuple(torn(late_source, 8, chooser=RandomWalk(s)).results[1][0]) for s in range(60)}
    assert seen == {(1.0,) * 4, (2.0,) * 4, (1.0, 1.0, 2.0, 2.0)}


def fenced(rank):
    window = rank.window("w", 4, torch.float32, init="zero")
    cells = rank.window("cells", 1, torch.int32)
    if rank.index == 0:
        rank.put(window, 1, torch.ones(4))
        rank.fence()
        rank.notify(cells, 1, 0, 1)
        return None
    rank.wait(cells, 0, 1)
    return rank.load(window, 0, 4).tolist()


def signalled(rank):
    window = rank.window("w", 4, torch.float32, init="zero")
    cells = rank.window("cells", 1, torch.int32)
    if rank.index == 0:
        rank.put_signal(window, 1, torch.ones(4), 0, cells, 0, 1)
        return None
    rank.wait(cells, 0, 1)
    return rank.load(window, 0, 4).tolist()


@pytest.mark.parametrize("program", [fenced, signalled])
@pytest.mark.parametrize("size", [4, 8])
def test_what_follows_a_torn_put_follows_its_last_piece(program, size):
    for seed in range(40):
        record = torn(program, size, chooser=RandomWalk(seed))
        assert record.results[1] == [[1.0] * 4]
        assert list(Conflicts(record)) == []
    assert torn(program, size, 2, Hold(0)).results[1] == [[1.0] * 4]


def test_quiet_waits_for_the_last_piece():
    for seed in range(40):
        record = torn(put_of(7), 4, chooser=POS(seed))
        kinds = [raw[1] for raw in record.raw if raw[0] in (0, 2)]
        assert kinds.index("deliver") < kinds.index("quiet")


@scenario(reference=lambda size: [None] * size)
def several_writers(rank):
    window = rank.window("w", 12, torch.float32, init="zero")
    into = rank.buffer(12, torch.float32)
    for peer in range(rank.size):
        rank.put(window, peer, torch.full((12,), 1.0 + rank.index))
        rank.get_nbi(into, peer, window)
    rank.fence()
    rank.put(window, 0, torch.full((6,), 9.0), 6)
    rank.barrier()


@pytest.mark.parametrize("size", [4, 8])
def test_explored_runs_with_pieces_convert_to_deviations(size):
    plan = Plan(
        scenario="several_writers", params=several_writers.params(), ranks=3,
        visibility=Visibility(torn=size),
    )
    for seed in range(25):
        for chooser in (RandomWalk(seed), POS(seed)):
            found = explore(plan, several_writers, chooser).run
            schedule = deviations_of(plan, several_writers, found)
            again = run(msgspec.structs.replace(plan, schedule=schedule), scenario=several_writers)
            assert again.run.identity() == found.identity()
            assert again.run.value_identity() == found.value_identity()


def test_a_preempt_comes_between_two_pieces():
    record = torn(half_and_half, 8)
    at = [raw[1] for raw in record.raw].index("deliver_part")
    points = [torn(half_and_half, 8, 2, Preempt(n, 0)) for n in range(record.points)]
    between = [
        r for r in points
        if "load" in [raw[1] for raw in r.raw][
            [raw[1] for raw in r.raw].index("deliver_part"):
            [raw[1] for raw in r.raw].index("deliver")
        ]
    ]
    assert at > 0
    assert between


def test_a_race_is_the_same_with_pieces():
    def program(rank):
        window = rank.window("w", 4, torch.float32, init="zero")
        if rank.index == 0:
            rank.put(window, 1, torch.ones(4))
        else:
            rank.load(window, 0, 4)

    for size in (0, 4, 8):
        assert len(list(Conflicts(torn(program, size)))) == (1 if size == 0 else 16 // size)
