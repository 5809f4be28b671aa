"""Disk operations as events of lanes: schedules interleave them, faults and deaths reach them."""

import os
from pathlib import Path

import msgspec
import torch

from faults.environment import Crash
from faults.storage import SlowIo
from harness import Plan, Preempt, Scenario, SimulatedDisk, Verdict, rank_disk, run
from harness.hunt import Order, Target, hunt
from harness.record import place
from harness.report.events import wordings


def plan_of(program, *faults, ranks=2):
    return Plan(scenario=program.name, params=program.params(), ranks=ranks, faults=faults)


def zeroed(world, params):
    disk = SimulatedDisk()
    fd = disk.open("/count", os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, memoryview(bytes(1)), 0)
    disk.close(fd)
    for device in range(world.size):
        world.dispatch(add_one, disk, device=device)


def add_one(rank, disk):
    """Read the count, write it plus one: wrong as soon as two ranks do it at once."""
    mine = rank_disk(rank, disk)
    held = bytearray(1)
    fd = mine.open("/count", os.O_RDWR)
    mine.pread(fd, memoryview(held), 0)
    held[0] += 1
    mine.pwrite(fd, memoryview(held), 0)
    mine.close(fd)
    rank.sync()
    fd = mine.open("/count", os.O_RDONLY)
    mine.pread(fd, memoryview(held), 0)
    mine.close(fd)
    return torch.tensor(float(held[0]))


counting = Scenario(
    name="counting", host=zeroed,
    reference=lambda params, size: {"result": [torch.tensor(float(size))] * size},
)


def test_the_default_run_does_one_rank_after_the_other():
    outcome = run(plan_of(counting), scenario=counting)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    owners = [event.owner for event in outcome.run.events if event.kind == "disk_pwrite"]
    assert owners == [0, 1]


def test_an_event_names_its_path_and_the_callers_line():
    record = run(plan_of(counting), scenario=counting).run
    event = next(event for event in record.events if event.kind == "disk_pwrite")
    assert str(record.site(event)) == "add_one:pwrite#0"
    line = int(place(event.code, event.lasti).split(":")[1].split()[0])
    assert "mine.pwrite(fd" in Path(__file__).read_text().splitlines()[line - 1]
    assert wordings(record, event) == ["pwrite /count", "pwrite"]


def test_a_schedule_interleaves_disk_operations_and_replays():
    found = hunt(Order(counting, 3, plans_max=200, until=Target("integrity/wrong_value")))
    assert found.finding is not None
    schedules = [(Preempt(at, 0),) for at in range(20)]
    plans = [msgspec.structs.replace(plan_of(counting), schedule=one) for one in schedules]
    wrong = [one for one in (run(plan, scenario=counting) for plan in plans) if one.findings]
    assert wrong
    assert {finding.name for one in wrong for finding in one.findings} == {"integrity/wrong_value"}
    again = run(wrong[0].plan, scenario=counting)
    assert again.run.identity() == wrong[0].run.identity()


def test_other_lanes_go_on_during_a_slow_operation():
    outcome = run(plan_of(counting, SlowIo(rank=0, nth=2)), scenario=counting)
    assert outcome.run.fired == [1]
    writes = [e.owner for e in outcome.run.events if e.kind in ("disk_pwrite", "sleep")]
    assert writes == [0, 1, 0]  # rank 0 begins, rank 1 writes, rank 0 has slept and writes over it
    assert "integrity/wrong_value" in [finding.name for finding in outcome.findings]


def one_process(rank, disk, views):
    """Lane 0 opens the rank's file; lane 1 writes through that descriptor and tidies up."""
    name = f"/of{rank.index}"
    if rank.lane == 0:
        views[rank.index] = rank_disk(rank, disk)
        views[rank.index].open(name, os.O_RDWR | os.O_CREAT)
        return torch.zeros(())
    mine = views[rank.index]
    try:
        mine.pwrite(3, memoryview(b"x"), 0)
    finally:
        mine.unlink(name)
    return torch.zeros(())


def processes(faults, disk):
    """A run of two ranks with two lanes each on `disk`."""

    def host(world, params):
        views = {}
        for device in range(world.size):
            world.dispatch(one_process, disk, views, device=device, lanes=2)

    def reference(params, size):
        return {"result": [[torch.zeros(()), torch.zeros(())]] * size}

    program = Scenario(name="processes", host=host, reference=reference)
    return run(plan_of(program, *faults), scenario=program)


def test_the_lanes_of_a_rank_share_its_descriptors():
    disk = SimulatedDisk()
    record = processes((), disk).run
    assert record.failures == []
    assert disk.listdir("/") == []
    writers = [event.owner for event in record.events if event.kind == "disk_pwrite"]
    assert [record.lanes[owner] for owner in writers] == [(0, 1), (1, 1)]


def test_a_rank_that_dies_at_a_disk_operation_touches_the_disk_no_more():
    disk = SimulatedDisk()
    record = processes((Crash(rank=0, nth=1),), disk).run
    assert record.fired == [1]
    assert (record.dead, record.failures) == ([0], [])
    assert disk.listdir("/") == ["of0"]  # rank 1 has tidied up, rank 0 has not
    assert disk.stat("/of0").size == 0
