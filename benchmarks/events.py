"""Events a second of the simulated fabric, against detangle and against the bare floor.

detangle (PyPI, 0.1.0) is a deterministic simulator of asyncio programs: the nearest published peer. Its
two renderings of the same 4-rank barrier: `inline` delivers a put within the rank's task after one
scheduling point, `tasks` makes every delivery a task of its own, as the simulated fabric does.

The floor of the all-reduce: for each event one greenlet round trip, and for each put and load the same
copies of 256 bytes and the same torch additions, with nothing around them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks import figure, programs
from harness import Scenario, plans, run
from harness.fabric.execute import Job, execute

RANKS = 4


def best_seconds(body: Callable[[], Any], repeat: int, number: int) -> float:
    """The best mean seconds of one call over `repeat` batches of `number`."""
    best = float("inf")
    for _ in range(repeat):
        started = time.perf_counter()
        for _ in range(number):
            body()
        best = min(best, (time.perf_counter() - started) / number)
    return best


async def _rank_inline(me: int, data: list[list[int]], cells: list[list[int]], bells: list[Any]) -> None:
    for peer in range(RANKS):
        if peer != me:
            await asyncio.sleep(0)
            data[peer][me] = 1
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            cells[peer][me] += 1
            bells[peer].set()
    for peer in range(RANKS):
        if peer != me:
            while cells[me][peer] < 1:
                bells[me].clear()
                await bells[me].wait()
            await asyncio.sleep(0)
            assert data[me][peer] == 1


async def _rank_tasks(me: int, data: list[list[int]], cells: list[list[int]], bells: list[Any]) -> None:
    async def deliver(target: list[int], amount: int, after: Any, bell: Any) -> None:
        if after is not None:
            await after
        target[me] += amount
        if bell is not None:
            bell.set()

    flying = []
    for peer in range(RANKS):
        if peer != me:
            put = asyncio.create_task(deliver(data[peer], 1, None, None))
            await asyncio.sleep(0)
            note = asyncio.create_task(deliver(cells[peer], 1, put, bells[peer]))
            await asyncio.sleep(0)
            flying += [put, note]
    for peer in range(RANKS):
        if peer != me:
            while cells[me][peer] < 1:
                bells[me].clear()
                await bells[me].wait()
            await asyncio.sleep(0)
            assert data[me][peer] == 1
    await asyncio.gather(*flying)


def _rendering(rank: Any) -> Callable[[], Any]:
    async def main() -> None:
        data = [[0] * RANKS for _ in range(RANKS)]
        cells = [[0] * RANKS for _ in range(RANKS)]
        bells = [asyncio.Event() for _ in range(RANKS)]
        await asyncio.gather(*(rank(me, data, cells, bells) for me in range(RANKS)))

    return main


def events(*, full: bool) -> list[dict[str, Any]]:
    """Runs and events a second of the 4-rank barrier, and the ratio to detangle's steps a second."""
    number = 1000 if full else 300
    job = Job(RANKS, programs.barrier_host())
    count = len(execute(job).raw)
    seconds = best_seconds(lambda: execute(job), 9, number)
    rate = count / seconds
    found = [
        figure("barrier runs", round(1 / seconds), "runs/s", ">= 2000", 1 / seconds >= 2000),
        figure("barrier events", round(rate), "events/s", "", None),
        figure("barrier events a run", count, "events", "84", count == 84),
    ]
    try:
        import detangle
    except ImportError:
        found.append(figure("events vs detangle", "detangle is not installed", "", ">= 1.5", None))
        return found
    rates = []
    for name, rank in (("inline", _rank_inline), ("tasks", _rank_tasks)):
        best = 0.0
        for attempt in range(5):
            stats = detangle.explore(
                _rendering(rank), runs=number, strategy="fifo", seed=attempt, database=False
            )
            best = max(best, stats.total_steps / stats.elapsed)
        rates.append(best)
        found.append(figure(f"detangle steps, {name}", round(best), "steps/s", "", None))
    ratio = rate / max(rates)
    found.append(
        figure("events vs detangle's steps", round(ratio, 2), "ratio", ">= 1.5", ratio >= 1.5)
    )
    return found


def hypothesis(*, full: bool) -> list[dict[str, Any]]:
    """Examples a second inside Hypothesis, against the same strategy with an empty body."""
    number = 1000 if full else 300
    scenario = Scenario(
        name="benchmark.barrier", host=lambda world, _: programs.barrier_host()(world),
        reference=lambda _, size: {"result": [None] * size}, ranks=(RANKS, RANKS),
    )
    strategy = plans(scenario)

    def rate(body: Callable[[Any], None]) -> float:
        best = 0.0
        for attempt in range(3):

            @seed(attempt)
            @settings(
                max_examples=number, database=None, deadline=None, phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            )
            @given(strategy)
            def check(plan: Any) -> None:
                body(plan)

            started = time.perf_counter()
            check()
            best = max(best, number / (time.perf_counter() - started))
        return best

    empty = rate(lambda plan: None)
    with_run = rate(lambda plan: run(plan, scenario=scenario))
    ratio = with_run / empty
    return [
        figure("Hypothesis examples, empty body", round(empty), "examples/s", "", None),
        figure("Hypothesis examples, run", round(with_run), "examples/s", "", None),
        figure("run vs empty body", round(ratio, 2), "ratio", ">= 0.7", ratio >= 0.7),
    ]


def _floor(events_count: int, copies: int, sums: int, count: int) -> float:
    """Seconds of one bare run: round trips, copies and additions, nothing else."""
    hub = getcurrent()

    def loop() -> None:
        while True:
            hub.switch()

    lane = greenlet(loop)
    memory = memoryview(bytearray(4 * count * 16))
    source = memoryview(bytearray(4 * count))
    tensor = torch.zeros(count)
    total = torch.zeros(count)
    nbytes = 4 * count

    def body() -> None:
        for _ in range(events_count):
            lane.switch()
        for _ in range(copies):  # put: source -> bytes -> window; load: window -> tensor
            memory[0:nbytes] = bytes(source[0:nbytes])
            torch.frombuffer(bytearray(memory[0:nbytes]), dtype=torch.float32)
        for _ in range(sums):
            total.add_(tensor)

    return best_seconds(body, 9, max(5000 // events_count, 5))


def allreduce(*, full: bool) -> list[dict[str, Any]]:
    """Time an event of the mesh all-reduce, P=4, 64 float32, in floors of the same run.

    Once with 16 all-reduces in a run, as a program makes them, and once with a single one, where the
    set-up of the world (host program, windows, lanes: about as long as 60 events) counts as well.
    """
    found = []
    for rounds, number in ((16, 100), (1, 1000)):
        job = Job(RANKS, programs.allreduce_host(rounds))
        count = len(execute(job).raw)
        seconds = best_seconds(lambda job=job: execute(job), 9, number if full else number // 3)
        floor = _floor(count, rounds * RANKS * RANKS, rounds * RANKS * (RANKS - 1), 64)
        ratio = seconds / floor
        label = f"all-reduce x {rounds}"
        found += [
            figure(f"{label}, {count} events", round(seconds / count * 1e6, 2), "us/event", "", None),
            figure(f"{label}, floor", round(floor / count * 1e6, 2), "us/event", "", None),
            figure(f"{label} vs floor", round(ratio, 2), "ratio", "<= 4 (aim 3)", ratio <= 4),
        ]
    return found


def flat(*, full: bool) -> list[dict[str, Any]]:
    """Time an event over run lengths from about 50 to 50,000 events, and over P from 2 to 16."""

    def per_event(ranks: int, rounds: int, number: int) -> tuple[int, float]:
        job = Job(ranks, programs.barrier_host(rounds))
        count = len(execute(job).raw)
        return count, best_seconds(lambda: execute(job), 3, number) / count

    found = []
    lengths = []
    for rounds in (1, 6, 60, 600):
        count, seconds = per_event(RANKS, rounds, max(600 // rounds, 1))
        lengths.append(seconds)
        found.append(
            figure(f"event, P=4, {count} events", round(seconds * 1e6, 2), "us", "", None)
        )
    spread = max(lengths) / min(lengths)
    found.append(
        figure("event, 84 to 50,400 events", round(spread, 2), "ratio", "<= 1.5", spread <= 1.5)
    )
    spread = max(lengths[1:]) / min(lengths[1:])
    found.append(figure("event, 504 to 50,400 events", round(spread, 2), "ratio", "", None))
    setup = best_seconds(lambda: execute(Job(RANKS, programs.barrier_host(0))), 5, 300)
    found.append(figure("set-up of a world of 4", round(setup * 1e6), "us", "", None))
    worlds = []
    for ranks in (2, 4, 8, 16):
        rounds = max(1, 5000 // (7 * ranks * (ranks - 1)))
        count, seconds = per_event(ranks, rounds, 5)
        worlds.append(seconds)
        found.append(
            figure(f"event, P={ranks}, {count} events", round(seconds * 1e6, 2), "us", "", None)
        )
    spread = max(worlds) / min(worlds)
    found.append(figure("event, P=2 to 16", round(spread, 2), "ratio", "<= 1.5", spread <= 1.5))
    return found
