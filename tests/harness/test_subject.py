"""Subject processes: what each end of a call looks like, and that nothing is left behind."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from harness.ambient import nap
from harness.errors import UsageError
from harness.subject import Answer, Crashed, Expired, Failed, Subject
from harness.supervise import zygote

FILE = str(Path(__file__).with_name("subject_examples.py"))
ADDER = f"{FILE}::Adder"
SOON = 60.0  # seconds that no test comes near


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter: it went while it was read
        return False
    return state != "Z"


def gone(pids, tries=6000):
    """Whether none of the processes is there any more, after a while at most."""
    for _ in range(tries):
        if not any(alive(pid) for pid in pids):
            return True
        nap(0.01)
    return False


@pytest.fixture
def adder():
    with Subject(ADDER, 5) as started:
        yield started


def test_answers_and_state_between_calls(adder):
    assert adder.call("add", 2, within=SOON) == Answer(7)
    assert adder.call("add", number=3, within=SOON) == Answer(10)


@pytest.mark.parametrize(
    "value",
    [
        None, True, -3, 1 << 63, 0.5, "words", b"\0bytes", [1, ["a"]], {"k": [1], (1, 2): 3},
        [b"x"] * 5000,
    ],
)
def test_values_come_back_as_they_went(adder, value):
    assert adder.call("echo", value, within=SOON) == Answer(value)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5), (1000, 1000)])
def test_tensors_come_back_as_copies(adder, shape):
    given = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    answer = adder.call("doubled", given, within=SOON)
    assert torch.equal(answer.value, given * 2)
    assert answer.value.dtype == torch.float32
    adder.call("doubled", given + 1, within=SOON)
    assert torch.equal(answer.value, given * 2)


def test_a_tensor_in_shared_memory_is_filled_by_the_child(adder):
    target = adder.tensor((5, 3), torch.float16)
    other = adder.tensor((7,), torch.float16)
    assert adder.call("fill", target, 2.0, within=SOON) == Answer(None)
    assert torch.equal(target, torch.full((5, 3), 2.0, dtype=torch.float16))
    assert torch.equal(other, torch.zeros(7, dtype=torch.float16))


@pytest.mark.parametrize("shift", [0, 1, 511, 512])
def test_a_tensor_lies_as_far_behind_a_page_in_both_processes(adder, shift):
    target = adder.tensor((100,), shift=shift)
    assert target.data_ptr() % 4096 == shift
    assert adder.call("address", target, within=SOON) == Answer(shift)


def test_memory_is_given_back():
    with Subject(ADDER, memory=3 * 4096) as small:
        for _ in range(50):
            small.tensor((4096,))
            small.call("fill", torch.zeros(100), 1.0, within=SOON)
            small.clear()
        with pytest.raises(UsageError, match=r"of 20000 bytes does not fit .* memory=12288"):
            small.tensor((20000,))
        with pytest.raises(UsageError, match="does not fit"):
            small.call("fill", torch.zeros(20000), 1.0, within=SOON)
        with pytest.raises(UsageError, match="does not fit"):
            small.call("doubled", small.tensor((8000,)), within=SOON)
        assert small.call("add", 1, within=SOON) == Answer(1)


def test_an_exception_is_its_class_and_text(adder):
    reply = adder.call("missing", within=SOON)
    assert isinstance(reply, Failed)
    assert reply.kinds[:2] == ("FileNotFoundError", "OSError")
    assert str(reply) == "FileNotFoundError: [Errno 2] no such block"
    assert "in missing" in reply.traceback
    assert adder.call("add", 1, within=SOON) == Answer(6)


def test_an_expiry_has_stacks_and_lasts(adder):
    there = adder.tensor((1,))
    adder.begin("sleep_for_ever", there, within=0.2)
    while not there.item():  # it has come to sleep, however long that took
        nap(0.01)
    reply = adder.finish()
    assert isinstance(reply, Expired)
    assert str(reply) == "no answer within 0.2 s"
    assert "sleep_for_ever" in reply.stacks
    assert gone([adder.pid] if adder.pid else [])
    assert adder.call("add", 1, within=SOON) is reply


def test_an_answer_that_dribbles_in_does_not_stretch_the_deadline(adder):
    assert isinstance(adder.call("dribble", within=0.3), Expired)


@pytest.mark.parametrize("code", [0, 1, 134])
def test_an_exit_is_a_crash_with_its_code(adder, code):
    reply = adder.call("exit_with", code, within=SOON)
    assert reply == Crashed(code)
    assert str(reply).startswith(f"the process ended with exit code {code}")
    assert adder.call("add", 1, within=SOON) is reply


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGKILL"])
def test_a_signal_is_a_crash_with_what_was_printed(adder, name):
    reply = adder.call("raise_signal", name, within=SOON)
    assert reply.code == -getattr(signal, name)
    assert str(reply) == f"the process was killed by {name}"
    assert f"about to {name}" in reply.log


def test_leaving_the_interpreter_is_a_crash(adder):
    assert adder.call("leave_system", within=SOON).code == 3


def test_a_kill_is_a_crash(adder):
    pid = adder.pid
    adder.kill()
    assert gone([pid])
    assert adder.call("add", 1, within=SOON) == Crashed(-signal.SIGKILL)


def test_several_are_at_work_at_once():
    with Subject(ADDER) as one, Subject(ADDER, 10) as other:
        one.begin("add", 1, within=SOON)
        other.begin("add", 1, within=SOON)
        assert (other.finish(), one.finish()) == (Answer(11), Answer(1))


def test_a_child_has_one_torch_thread_and_the_harnesss_folder(adder):
    assert adder.call("threads", within=SOON) == Answer(1)
    assert adder.call("here", within=SOON) == Answer(os.getcwd())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{FILE}::Addr", "has no 'Addr'; did you mean 'Adder'?"),
        (f"{FILE}::number", "is int; allowed is a class or a function"),
        (f"{FILE}::Unmakeable", "Unmakeable cannot be made: ValueError: not today"),
        ("no_such_file.py::Adder", r"no_such_file.py cannot be imported: FileNotFoundError"),
        ("no_such_module:Adder", "no_such_module cannot be imported: ModuleNotFoundError"),
        ("collections:Ordered", "collections has no 'Ordered'; did you mean 'OrderedDict'?"),
    ],
)
def test_a_wrong_name_is_one_clear_line(name, text):
    with pytest.raises(UsageError, match=text) as told:
        Subject(name)
    assert "\n" not in str(told.value)


def test_wrong_calls_are_one_clear_line(adder):
    with pytest.raises(UsageError, match=r"no method 'ad'; did you mean 'add'\?"):
        adder.call("ad", 1, within=SOON)
    with pytest.raises(UsageError, match="add: object cannot be sent; None, bool"):
        adder.call("add", object(), within=SOON)
    with pytest.raises(UsageError, match="its answer: object cannot be sent"):
        adder.call("unsendable", within=SOON)
    for value, text in (
        (1 << 64, "serialize ints"),
        (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        (torch.empty(2, device="meta"), "on meta cannot be sent"),
    ):
        with pytest.raises(UsageError, match=text):
            adder.call("echo", value, within=SOON)
    adder.begin("add", 0, within=SOON)
    with pytest.raises(UsageError, match="a call is at work; finish it"):
        adder.begin("add", 1, within=SOON)
    assert adder.finish() == Answer(5)
    with pytest.raises(UsageError, match="shift: given -1"):
        adder.tensor((3,), shift=-1)
    for memory in (0, -1, 1.5, 1 << 50):
        with pytest.raises(UsageError, match="memory: given"):
            Subject(ADDER, memory=memory)
    with pytest.raises(UsageError, match="within: given 0"):
        Subject(ADDER, within=0)
    for within in (0, -1, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="within: given"):
            adder.call("add", 1, within=within)
    assert adder.call("add", 1, within=SOON) == Answer(6)


def test_what_is_preloaded_is_there_from_the_start_and_may_fail():
    name = f"{FILE}::Adder"
    with Subject(name) as started:
        assert started.call("has_imported", "wave", within=SOON) == Answer(False)
    with Subject(name, preload=["wave", "no_such_module"]) as started:
        assert started.call("has_imported", "wave", within=SOON) == Answer(True)


def test_closing_ends_what_the_subject_started():
    with Subject(ADDER) as started:
        child = started.call("start_child", within=SOON).value
        pid = started.pid
        assert alive(child)
    assert gone([pid, child])
    started.close()
    assert started.call("add", 1, within=SOON) == Crashed(0)


def test_many_leave_no_descriptor_open():
    Subject(ADDER).close()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        Subject(ADDER).close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_source_that_was_killed_is_started_again():
    Subject(ADDER).close()
    killed = zygote()._process
    killed.kill()
    killed.wait()
    with Subject(ADDER) as started:
        assert started.call("add", 1, within=SOON) == Answer(1)


HARNESS = """
import sys
from harness.subject import Subject
from harness.supervise import zygote
made = Subject.new_folder()
open(made + "/file", "w").close()
one, two = Subject({adder!r}), Subject({adder!r})
child = two.call("start_child", within=20).value
one.begin("sleep_for_ever", None, within=600)
print(made, zygote()._process.pid, one.pid, two.pid, child, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kill", [False, True], ids=["ends", "is killed"])
def test_nothing_is_left_when_the_harness(kill):
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS.format(adder=ADDER)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as harness:
        made, *pids = harness.stdout.readline().split()
        assert Path(made).is_dir()
        assert all(alive(pid) for pid in pids)
        if kill:
            harness.kill()
    assert gone(pids)
    assert not Path(made).parent.exists()
