"""Power cuts on a real ext4: what they take, what they leave, and that nothing of them stays behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness import power_cut
from harness.ambient import nap
from harness.errors import UsageError
from harness.power_cut import MEMORY_NAME, PowerCut, SmallDisk
from harness.subject import Answer, Crashed, Subject

EXAMPLES = f"{Path(__file__).with_name('subject_examples.py')}::Writer"
SOON = 60.0
HOLD = """
import sys, time
from harness.power_cut import PowerCut
with PowerCut() as disk:
    print(disk.inside, disk._loop, disk.keeper, flush=True)
    {then}
"""
with_power_cut = pytest.mark.skipif(bool(PowerCut.unavailable()), reason=PowerCut.unavailable())
with_small_disk = pytest.mark.skipif(bool(SmallDisk.unavailable()), reason=SmallDisk.unavailable())


def backed(device):
    """What is in the loop device, "" if nothing is."""
    try:
        return Path("/sys/block", Path(device).name, "loop/backing_file").read_text().strip()
    except OSError:
        return ""


def ours(keeper):
    """Whether the keeper's process is there."""
    try:
        return b"rankfault" in Path(f"/proc/{keeper}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(inside, device, keeper):
    for _ in range(6000):
        if not (ours(keeper) or os.path.exists(inside) or MEMORY_NAME in backed(device)):
            return True
        nap(0.01)
    return False


def put(path, data, *, sync=False):
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


@pytest.fixture
def disk():
    with PowerCut() as made:
        yield made


@with_power_cut
def test_what_was_synchronised_is_kept_and_the_rest_is_lost(disk):
    folder = Path(disk.folder)
    put(folder / "old", b"old" * 3000, sync=True)
    disk.cut()
    disk.restore()
    assert (folder / "old").read_bytes() == b"old" * 3000
    put(folder / "old", b"new" * 3000)
    put(folder / "lost", b"x")
    disk.cut()
    with pytest.raises(OSError, match="Input/output error"):
        put(folder / "later", b"x", sync=True)
    disk.restore()
    assert (folder / "old").read_bytes() == b"old" * 3000
    assert not (folder / "lost").exists()
    assert not (folder / "later").exists()


@with_power_cut
def test_a_flushed_log_keeps_names_whose_data_is_lost(disk):
    put(Path(disk.folder, "name"), b"x" * 9000)
    disk.cut(log_flushed=True)
    disk.restore()
    assert Path(disk.folder, "name").read_bytes() == b""


@with_power_cut
def test_a_rename_without_fsync_leaves_the_old_file(disk):
    folder = Path(disk.folder)
    put(folder / "target", b"old", sync=True)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    put(folder / "new", b"new")
    os.rename(folder / "new", folder / "target")
    disk.cut()
    disk.restore()
    assert (folder / "target").read_bytes() == b"old"
    assert not (folder / "new").exists()


@with_power_cut
def test_a_subject_sees_the_disk_and_meets_the_cut(disk):
    with Subject(EXAMPLES, mounts_of=disk) as subject:
        where = os.path.join(disk.inside, "file")
        assert subject.call("write", where, b"data", within=SOON) == Answer(where)
        assert Path(disk.folder, "file").read_bytes() == b"data"
        assert not os.path.exists(where)  # nobody else does
        disk.cut()
        assert subject.call("write", where, b"more", within=SOON).kinds[0] == "OSError"
        subject.kill()
    disk.restore()
    assert Path(disk.folder, "file").read_bytes() == b"data"


@with_power_cut
def test_it_is_not_restored_under_an_open_file(disk):
    disk.cut()
    fd = os.open(disk.folder, os.O_RDONLY)
    try:
        with pytest.raises(UsageError, match="end the processes that use it before restore"):
            disk.restore()
    finally:
        os.close(fd)
    disk.restore()


@with_power_cut
def test_nothing_is_left_and_nobody_else_sees_the_mount():
    mounts = Path("/proc/self/mounts").read_text()
    with PowerCut() as disk:
        inside, device, keeper = disk.inside, disk._loop, disk.keeper
        assert MEMORY_NAME in backed(device)
        assert inside not in Path("/proc/self/mounts").read_text()
        assert os.listdir(inside) == []
    assert gone(inside, device, keeper)
    with pytest.raises(RuntimeError), PowerCut() as disk:
        raise RuntimeError
    assert gone(disk.inside, disk._loop, disk.keeper)
    assert Path("/proc/self/mounts").read_text() == mounts


@with_power_cut
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_nothing_is_left_of_a_harness_that_is_killed(how):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(then="time.sleep(100)")], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2],
    )
    with process:
        inside, device, keeper = process.stdout.readline().split()
        assert MEMORY_NAME in backed(device)
        process.send_signal(getattr(signal, how))
        process.wait()
    assert gone(inside, device, keeper)


@with_small_disk
def test_a_small_disk_gets_full_and_grows():
    with SmallDisk(8192) as disk:
        path = Path(disk.folder, "file")
        with pytest.raises(OSError, match="No space left"):
            put(path, bytes(20000))
        assert path.stat().st_size < 20000
        disk.resize(1 << 20)
        put(path, bytes(20000))
    assert not os.path.exists(disk.inside)


def test_without_root_the_reason_is_said(monkeypatch):
    if os.geteuid():
        assert "it needs root" in PowerCut.unavailable()
        return
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert power_cut._why_not(lambda: None) == "it needs root"


def test_a_step_that_fails_is_the_reason():
    def attempt():
        Path("/dev/null/nothing").read_bytes()

    if os.geteuid() == 0:
        assert power_cut._why_not(attempt) == "Not a directory: /dev/null/nothing"


def test_a_subject_may_have_another_python():
    with Subject(EXAMPLES, interpreter=sys.executable) as subject:
        assert subject.call("python", within=SOON) == Answer([sys.executable, subject.pid])
        target = subject.tensor((4,))
        subject.call("fill", target, within=SOON)
        assert target.tolist() == [7] * 4
        assert subject.call("leave", 9, within=SOON) == Crashed(9)


def test_a_python_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be made: FileNotFoundError"):
        Subject(EXAMPLES, interpreter=str(tmp_path / "python"))
