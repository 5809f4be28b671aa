"""Supervised processes: deadlines, stacks before a kill, endings as data, and that nothing is left."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.ambient import nap
from harness.supervise import Child, Deadline, Ending, Limits, forked, stacks, supervised, zygote

SOON = 60.0  # seconds that no test comes near
HERE = "test_supervise"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The entries below are found on this process's path."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def sleeps(value, fds):
    if fds:
        os.write(fds[0], b"r")
    nap(1000)


def ends(value, fds):
    sys.stdout.write(f"about to end with {value}\n")
    sys.stdout.flush()
    if value >= 0:
        sys.exit(value)
    os.kill(os.getpid(), -value)


def aborts(value, fds):
    ctypes.CDLL(None).abort()


def ignores_sigterm(value, fds):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(fds[0], b"r")
    nap(1000)


def sleeps_in_threads(value, fds):
    for _ in range(value):
        threading.Thread(target=nap, args=(1000,), daemon=True).start()
    sleeps(0, fds)


def starts_another(value, fds):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    os.write(fds[0], str(other.pid).encode())
    nap(1000)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter: it went while it was read
        return False


def gone(pids, seconds=SOON):
    for _ in range(round(seconds / 0.02)):
        if not any(alive(pid) for pid in pids):
            return True
        nap(0.02)
    return False


@pytest.mark.parametrize("code", [0, 3, 134, -6, -7, -9, -11])
def test_how_a_child_ends_is_data(code):
    child = supervised(f"{HERE}:ends", code)
    ending = child.ended(within=SOON)
    assert ending.code == code
    assert f"about to end with {code}" in ending.log
    child.close()


def test_an_abort_in_native_code_leaves_its_signal_and_its_stack():
    child = supervised(f"{HERE}:aborts", 0)
    ending = child.ended(within=SOON)
    assert ending.code == -signal.SIGABRT
    assert "in aborts" in ending.log
    child.close()


def test_endings_in_words():
    assert str(Ending(3)) == "the process ended with exit code 3"
    assert str(Ending(137)) == "the process ended with exit code 137 (as a shell says SIGKILL)"
    assert str(Ending(-6)) == "the process was killed by SIGABRT"
    assert str(Ending(-200)) == "the process was killed by signal 200"


def test_stacks_of_several_children_come_in_their_order_and_say_what_cannot_be_had():
    read, write = os.pipe()
    first, stopped, ended = (
        supervised(f"{HERE}:sleeps", 0, [write]), supervised(f"{HERE}:sleeps", 0, [write]),
        supervised(f"{HERE}:ends", 5),
    )
    assert ended.ended(within=SOON).code == 5
    assert os.read(read, 1) + os.read(read, 1) == b"rr"
    stopped.signal(signal.SIGSTOP)
    told = stacks([first, stopped, ended])
    assert "in sleeps" in told[0]
    assert "the process is stopped (SIGSTOP)" in told[1]
    assert told[2] == "the process ended with exit code 5"
    for child in (first, stopped, ended):
        child.close()
    os.close(read)
    os.close(write)


def test_stacks_come_whole_however_many_threads_there_are():
    read, write = os.pipe()
    child = supervised(f"{HERE}:sleeps_in_threads", 60, [write])
    assert os.read(read, 1) == b"r"
    (told,) = stacks([child], within=SOON)
    assert "in sleeps_in_threads" in told  # the first thread comes last
    assert told.endswith("in <module>"), told
    child.close()
    os.close(read)
    os.close(write)


def test_a_child_that_is_asked_for_its_stacks_before_it_can_tell_lives_on():
    child = supervised(f"{HERE}:sleeps", 0)
    child.signal(signal.SIGUSR1)
    assert child.stop(grace=SOON).code == -signal.SIGTERM
    child.close()


def test_a_stop_is_soft_then_hard():
    read, write = os.pipe()
    soft = supervised(f"{HERE}:sleeps", 0)
    hard = supervised(f"{HERE}:ignores_sigterm", 0, [write])
    assert os.read(read, 1) == b"r"
    assert soft.stop(grace=SOON).code == -signal.SIGTERM
    assert hard.stop(grace=0.1).code == -signal.SIGKILL
    assert hard.stop().code == -signal.SIGKILL, "twice is fine"
    for child in (soft, hard):
        child.close()
    os.close(read)
    os.close(write)


def test_a_stop_ends_what_the_child_started():
    read, write = os.pipe()
    child = supervised(f"{HERE}:starts_another", 0, [write])
    other = int(os.read(read, 20))
    assert alive(other)
    child.stop(grace=0)
    assert gone([other])
    child.close()
    os.close(read)
    os.close(write)


def test_a_fork_of_this_process_runs_what_no_other_could_import():
    told = []
    child = forked(lambda: sys.exit(len(told) + 40))
    assert child.ended(within=SOON).code == 40
    child.close()


def test_the_first_limit_to_expire_is_named():
    assert Deadline(Limits(operation=1.0, plan=5.0)).expired() == "operation limit of 1 s"
    assert Deadline(Limits(operation=9.0, plan=5.0)).expired() == "plan limit of 5 s"
    over = Deadline(Limits(operation=9.0, plan=5.0), hunt_ends=0.0)
    assert over.left() < 0
    assert over.expired().startswith("hunt limit")


def counted():
    """What a child that was not cleaned up would leave: descriptors, shared memory, folders, children."""
    own = os.getpid()
    return (
        len(os.listdir("/proc/self/fd")),
        segments([own, zygote()._process.pid]),
        sorted(os.listdir(zygote().folder)),
        sorted(
            pid for pid in os.listdir("/proc")
            if pid.isdigit() and parent(pid) in (own, zygote()._process.pid)
        ),
    )


def segments(pids):
    """The shared-memory segments that torch has named after one of these processes."""
    return sorted(
        name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in f"_{name}_" for pid in pids)
    )


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def test_kills_and_stops_in_a_row_leave_nothing():
    supervised(f"{HERE}:sleeps", 0).close()
    before = counted()
    for number in range(12):
        child = supervised(f"{HERE}:sleeps", 0)
        if number % 3 == 0:
            child.signal(signal.SIGKILL)
            assert child.ended(within=SOON).code == -signal.SIGKILL
        elif number % 3 == 1:
            child.signal(signal.SIGSTOP)
            assert child.stop(grace=SOON).code == -signal.SIGTERM
        child.close()
    assert counted() == before


HARNESS = """
import sys
sys.path.insert(0, {here!r})
from harness.supervise import forked, supervised, zygote
import os
read, write = os.pipe()
one = supervised("test_supervise:sleeps", 0)
two = supervised("test_supervise:starts_another", 0, [write])
three = forked(lambda: sys.stdin.read() or __import__("signal").pause())
pids = zygote()._process.pid, one.pid, two.pid, int(os.read(read, 20)), three.pid
print(zygote().folder, *pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kill", [False, True], ids=["ends", "is killed"])
def test_nothing_is_left_when_the_harness(kill):
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS.format(here=str(Path(__file__).parent))], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as harness:
        folder, *pids = harness.stdout.readline().split()
        assert Path(folder).is_dir()
        assert all(alive(pid) for pid in pids)
        if kill:
            harness.kill()
    assert gone(pids)
    assert not Path(folder).exists()
    assert segments([harness.pid, *pids]) == []


def test_a_child_that_was_never_there_has_ended():
    child = Child(0x3FFFFF, os.memfd_create("log"), lambda pid: -9)
    assert child.ended().code == -9
    child.close()
