"""Tensors in flight: writes and reads are told with the user's line, and nothing else is."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("deed", "writes"),
    [("x.add_(1)", True), ("x[0] = 5", True), ("x.sum()", False), ("y = x + 1", False),
     ("x.view(2, 2)[0].mul_(2)", True), ("print(x)", False), ("x.tolist()", False)],
)
def test_a_touch_before_the_wait_is_told(script, deed, writes):
    run = script(f"x = torch.ones(4)\nw = dist.all_reduce(x, async_op=True)\n{deed}\nw.wait()", 2).run
    told = [touched for touched in run.touched if touched.by]
    assert told
    assert all(touched.writes == writes for touched in told[:1])
    assert told[0].code.co_filename.endswith("program.py")


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.ones(4)\nw = dist.all_reduce(x, async_op=True)\nw.wait()\nx.add_(1)",
        "x = torch.ones(4)\nw = dist.all_reduce(x, async_op=True)\ny = torch.ones(4)\ny += 1\nw.wait()",
        "x = torch.ones(4)\nw = dist.broadcast(x, 0, async_op=True)\nx.shape\nx.view(2, 2)\nw.wait()",
        "x = torch.ones(4)\nw = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)\n"
        "if rank == 0: x.sum()\nw.wait()",
        "x = torch.ones(4)\nw = dist.all_reduce(x, async_op=True)\n"
        "while not w.is_completed(): pass\nx.add_(1)",
        "x = torch.ones(4)\nf = dist.all_reduce(x, async_op=True).get_future()\n"
        "f.then(lambda f: f.value()[0] / size).wait()",
    ],
    ids=["after", "another", "shape", "read-of-what-is-read", "polled", "then"],
)
def test_what_is_allowed_is_not_told(script, text):
    outcome = script(text, 2)
    assert outcome.run.touched == []
    assert outcome.findings == ()


def test_a_collective_on_a_tensor_in_flight_is_told(script):
    run = script("""
        x = torch.ones(4)
        w = dist.all_reduce(x, async_op=True)
        dist.broadcast(x, 0)
        w.wait()
    """, 2).run
    assert {touched.by for touched in run.touched if touched.by} >= {"broadcast"}


def test_modes_of_the_process_are_left_as_they_were(script):
    from torch.utils import _python_dispatch as dispatch

    before = dispatch._is_in_torch_dispatch_mode
    script("dist.all_reduce(torch.ones(2))", 3)
    assert dispatch._is_in_torch_dispatch_mode == before
