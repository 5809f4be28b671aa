"""What a power cut leaves on a real ext4 is something that the simulated disk's profile allows.

Short random programs of file operations run on both; the real one's power is cut. Always checked against
`SimulatedDisk.durable()` and against every state that CrashStates enumerates.
"""

import os

import pytest

from harness import SimulatedDisk
from harness.ambient import generator
from harness.crash_states import CrashStates
from harness.power_cut import PowerCut
from systems.store.real import RealDisk

PROGRAMS = 15
LENGTH = 8
NAMES = ("a", "b", "c")
SIZES = (100, 512, 4096, 5000, 9000)
pytestmark = pytest.mark.skipif(bool(PowerCut.unavailable()), reason=PowerCut.unavailable())


def program(number):
    """Operations as (kind, name, ...)."""
    draw = generator("power cut", number)
    made = []
    for _ in range(draw.randint(2, LENGTH)):
        kind = draw.choice(["write", "write", "fsync", "rename", "unlink", "truncate", "folder"])
        name, other = draw.sample(NAMES, 2)
        offset, size = draw.choice([0, 0, 4096]), draw.choice(SIZES)
        made.append((kind, name, other, offset, size, draw.randrange(256)))
    return made


def step(disk, root, operation):
    """One operation on either disk; a missing file is no error of the program."""
    kind, name, other, offset, size, value = operation
    path, target = f"{root}/{name}", f"{root}/{other}"
    if kind == "folder":
        disk.fsync_dir(root)
        return
    if kind != "write" and not disk.exists(path):
        return
    if kind == "rename":
        disk.rename(path, target)
    elif kind == "unlink":
        disk.unlink(path)
    else:
        fd = disk.open(path, os.O_RDWR | (os.O_CREAT if kind == "write" else 0))
        try:
            if kind == "write":
                disk.pwrite(fd, memoryview(bytes([value]) * size), offset)
            elif kind == "fsync":
                disk.fsync(fd)
            else:
                disk.truncate(fd, size)
        finally:
            disk.close(fd)


def files(disk, root):
    """Every file's bytes by name."""
    found = {}
    for name in disk.listdir(root):
        if name == "lost+found":
            continue
        fd = disk.open(f"{root}/{name}", os.O_RDONLY)
        data = memoryview(bytearray(disk.stat(f"{root}/{name}").size))
        if len(data):
            assert disk.pread(fd, data, 0) == len(data)
        disk.close(fd)
        found[name] = bytes(data)
    return found


@pytest.fixture(scope="module")
def power():
    with PowerCut() as made:
        yield made


def seen(power, number):
    """What ext4 has after the cut, and the simulated disk before it; each program in a folder of its own,
    which is durable."""
    real, simulated = RealDisk(), SimulatedDisk()
    root = os.path.join(power.folder, f"program-{number}")
    real.makedirs(root)
    real.fsync_dir(power.folder)
    simulated.makedirs("/d")
    simulated.fsync_dir("/")
    operations = program(number)
    for operation in operations:
        step(real, root, operation)
        step(simulated, "/d", operation)
    assert files(real, root) == files(simulated, "/d")
    power.cut(log_flushed=bool(number % 2))
    power.restore()
    return files(real, root), simulated, operations


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_what_is_durable_and_untouched_since_is_there(power, number):
    there, simulated, operations = seen(power, number)
    durable, live = files(simulated.durable(), "/d"), files(simulated, "/d")
    for name in durable.keys() & live.keys():
        if durable[name] == live[name]:
            touched = [o for o in operations if name in (o[1], o[2] if o[0] == "rename" else "")]
            if touched and touched[-1][0] in ("rename", "unlink"):
                continue  # another file may have the name
            assert there.get(name) == live[name], operations


@pytest.mark.parametrize("number", range(PROGRAMS, 2 * PROGRAMS))
def test_ext4_leaves_a_state_that_weak_posix_allows(power, number):
    there, simulated, operations = seen(power, number)
    states = CrashStates(simulated.log, "posix")
    allowed = {tuple(sorted(files(states.disk(crash), "/d").items()))
               for crash in states if states.disk(crash).exists("/d")}
    assert tuple(sorted(there.items())) in allowed, (operations, {k: len(v) for k, v in there.items()})
