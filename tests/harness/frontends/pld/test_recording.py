"""What follows from all dispatches of a host call: comm domains, queues, what plain tensors order."""

import torch

from harness.frontends.pypto.dtypes import FP32, INT32
from harness.frontends.pypto.recording import Recording
from harness.frontends.pypto.values import WindowView
from harness.host import World


def recorded(size=3):
    return Recording(World(size))


def on(host, device, *args, writes=()):
    host.dispatch("step", print, args, device)
    host.steps[-1].writes = writes


def test_a_domain_is_the_devices_that_are_given_the_window():
    host = recorded()
    first, second, unused = (WindowView(host.alloc(64), (16,), FP32) for _ in range(3))
    on(host, 0, first)
    on(host, 1, first, second)
    on(host, 2, second)
    host.settle()
    assert first.buffer.members == (0, 1)
    assert second.buffer.members == (1, 2)
    assert unused.buffer.members == (0, 1, 2)


def test_what_a_host_collective_names_together_has_one_domain():
    host = recorded()
    data, signal, more = (WindowView(host.alloc(64), (16,), INT32) for _ in range(3))
    on(host, 1, data)
    on(host, 2, data)
    host.collective("barrier", print, data, signal)
    host.collective("barrier", print, signal, more)
    host.settle()
    assert signal.buffer.members == more.buffer.members == (1, 2)
    assert [step.name for step in host.queue(1)] == ["step", "barrier", "barrier"]
    assert host.queue(0) == []


def test_a_reader_comes_after_another_device_s_writer_but_no_writer_after_a_reader():
    host = recorded()
    x = host.tensor(torch.zeros(3, 4), "x")
    on(host, 0, x[0], writes=(0,))
    on(host, 1, x[0])
    on(host, 2, x[1])
    on(host, 2, x[0], writes=(0,))
    assert [step.after for step in host.steps] == [[], [0], [], [0]]
    assert [step.awaited for step in host.steps] == [True, False, False, False]


def test_a_second_call_finds_the_windows_of_the_first():
    host = recorded()
    first = host.alloc(64, "data")
    host.again()
    assert host.alloc(64, "data") is first
    assert len(host.world.recorded.windows) == 1
