"""asyncio in ranks: virtual time, threads beside the loop, standstills that name it."""

import pytest

from harness.finding import Verdict
from harness.hunt import hunt
from harness.portfolio import Order

PROGRAMS = {
    "timers and a heartbeat": ("""
        import asyncio
        async def beat(over, beats):
            while not over.is_set():
                beats.append(1)
                try:
                    await asyncio.wait_for(over.wait(), 5)
                except asyncio.TimeoutError:
                    pass
        async def train():
            over, beats = asyncio.Event(), []
            beating = asyncio.create_task(beat(over, beats))
            x = torch.ones(2)
            for _ in range(3):
                await asyncio.sleep(6)
                dist.all_reduce(x)
            over.set()
            await beating
            return x.tolist(), len(beats)
        print(asyncio.run(train()))
    """, "([8.0, 8.0], 4)\n"),
    "to_thread": ("""
        import asyncio
        def reduced(group):
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            return x.tolist()
        group = dist.new_group()
        async def both():
            return await asyncio.gather(
                asyncio.to_thread(reduced, None), asyncio.to_thread(reduced, group)
            )
        print(asyncio.run(both()))
    """, "[[2.0, 2.0], [2.0, 2.0]]\n"),
    "a loop in a thread": ("""
        import asyncio, threading
        loop = asyncio.new_event_loop()
        loop.add_signal_handler(15, loop.stop)
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        async def later(value):
            await asyncio.sleep(3600)
            return value
        x = torch.full((2,), asyncio.run_coroutine_threadsafe(later(2.0), loop).result())
        dist.all_reduce(x)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        print(x.tolist())
    """, "[4.0, 4.0]\n"),
    "the old way": ("""
        import asyncio
        async def one():
            return 1
        print(asyncio.get_event_loop().run_until_complete(one()))
    """, "1\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_correct_programs_are_silent(script, name):
    text, printed = PROGRAMS[name]
    for _ in range(2):  # what asyncio keeps by thread is not there the next time
        outcome = script(text, 2)
        assert outcome.verdict is Verdict.PASS, outcome.findings
        assert outcome.run.printed == [printed] * 2
    result = hunt(Order(scenario=script.scenario(text), ranks=(2, 2), root_seed=7, plans_max=25))
    assert result.finding is None, result.finding


def test_two_threads_of_a_loop_on_one_group_are_found(script):
    text = PROGRAMS["to_thread"][0].replace("group = dist.new_group()", "group = None")
    text = text.replace("x = torch.ones(2)", "x = torch.ones(2 if group is None else 3)").replace(
        "asyncio.to_thread(reduced, group)", "asyncio.to_thread(dist.barrier)"
    )
    result = hunt(Order(scenario=script.scenario(text), ranks=(2, 2), root_seed=7, plans_max=25))
    assert result.finding is not None
    assert result.finding.kind in ("different_collective", "cycle")


def test_a_task_that_nobody_ends_is_a_standstill_with_its_line(script):
    outcome = script("""
        import asyncio
        async def main():
            await asyncio.Event().wait()
        if rank == 0:
            asyncio.run(main())
        dist.barrier()
    """, 2)
    assert [one.name for one in outcome.findings] == ["torch/unsatisfied"]
    said = " ".join((outcome.findings[0].message, *outcome.findings[0].evidence))
    assert "program.py:13" in said, said
    assert "asyncio" in said or "run" in said, said


def test_a_loop_that_watches_a_socket_waits_for_it(script):
    outcome = script("""
        import asyncio, socket
        async def main():
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            asyncio.get_running_loop().call_soon(theirs.send, b"here")
            return await asyncio.get_running_loop().sock_recv(ours, 4)
        print(asyncio.run(main()))
        dist.barrier()
    """, 2)
    assert outcome.verdict is Verdict.PASS, outcome.findings
    assert outcome.run.printed == ["b'here'\n"] * 2
