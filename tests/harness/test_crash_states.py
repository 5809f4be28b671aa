"""The crash states of a disk: as a brute-force enumerator finds them, and as a plan replays them."""

import itertools
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import SimulatedDisk
from harness.crash_states import CrashStates, disk_of
from harness.plan import Crash

PROFILES = ("posix", "ext4", "nfs")
LOG_MAX = 12
UNLIMITED = 1 << 30
OPERATIONS = ("make", "write", "fsync", "fail", "folder", "rename", "unlink", "truncate", "mark", "close")
NAMES = ("mkdir", "create", "rename", "unlink")
DATA = ("write", "truncate")
MARKS = ("begun", "acknowledged")
SECTOR = 512


# The brute-force enumerator: every subset of a log's effects, tried one by one, from the definition of
# the profiles and not from the code. Paths stand for folders: no folder is renamed or removed.


def folder(path):
    return path.rpartition("/")[0] or "/"


def longer_writes(log):
    """Indexes of the writes that make their file longer."""
    sizes, found = {}, set()
    for index, entry in enumerate(log):
        if entry.kind == "write" and entry.offset + entry.length > sizes.get(entry.inode, 0):
            sizes[entry.inode] = entry.offset + entry.length
            found.add(index)
        elif entry.kind == "truncate":
            sizes[entry.inode] = entry.length
    return found


def needed(log, index, profile):
    """What has persisted wherever `index` has."""
    if profile != "ext4":
        return set()
    entry, longer = log[index], longer_writes(log)
    before = range(index)
    if entry.kind != "write":
        return {i for i in before if log[i].kind in (*NAMES, "truncate")}
    mine = {i for i in before if log[i].kind in DATA and log[i].inode == entry.inode}
    if index in longer:
        return mine
    return {i for i in mine if i in longer or log[i].kind == "truncate"}


def is_forced(log, index, at, profile):
    """Whether entry `index` is durable at a crash after `at` entries, not counting what others need."""
    entry = log[index]
    named = entry.kind in NAMES
    if profile == "nfs" and entry.kind != "write":
        return True
    for later in range(index + 1, at):
        other = log[later]
        if profile == "ext4" and entry.kind != "write" and other.kind in ("fsync", "fsync_dir"):
            return True
        if named:
            places = {folder(path) for path in (entry.path, entry.target) if path}
            if other.kind == "fsync_dir" and other.path in places:
                return True
            continue
        if other.inode != entry.inode:
            continue
        if other.kind == "failed_fsync":
            return False
        if other.kind == "fsync" or (profile == "nfs" and other.kind in ("close", "truncate")):
            return True
    return False


def content_of(log, kept, inode, torn):
    content = b""
    for index in kept:
        entry = log[index]
        if entry.inode != inode or entry.kind not in DATA:
            continue
        if entry.kind == "truncate":
            content = content[: entry.length].ljust(entry.length, b"\0")
            continue
        data, size = entry.data, 0
        if torn is not None and torn[0] == index:
            data = data[: torn[1] - entry.offset]
            size = entry.offset + entry.length if torn[2] else 0
            if not data and not torn[2]:
                continue
        content = content.ljust(entry.offset, b"\0")
        content = content[: entry.offset] + data + content[entry.offset + len(data) :]
        content = content.ljust(size, b"\0")
    return content


def tree_of(log, kept, torn):
    """Paths with their contents (None: a folder), those without a way down from the root left out."""
    names = {}
    for index in kept:
        entry = log[index]
        if entry.kind in ("mkdir", "create"):
            names[entry.path] = entry
        elif entry.kind == "unlink":
            names.pop(entry.path, None)
        elif entry.kind == "rename":
            names.pop(entry.path, None)
            names[entry.target] = entry
    found = set()
    for path, entry in names.items():
        above, there = folder(path), True
        while above != "/":
            there = there and above in names
            above = folder(above)
        if there:
            is_dir = entry.kind == "mkdir"
            found.add((path, None if is_dir else content_of(log, kept, entry.inode, torn)))
    return frozenset(found)


def tears(log, kept, forced, profile):
    written = [index for index in kept if log[index].kind == "write" and index not in forced]
    if not written:
        return
    last = written[-1]
    entry = log[last]
    end = entry.offset + entry.length
    grows = end > len(content_of(log, [i for i in kept if i != last], entry.inode, None))
    for cut in range(entry.offset, end):
        if cut % SECTOR == 0 and cut > entry.offset:
            yield last, cut, False
        if (cut % SECTOR == 0 or cut == entry.offset) and grows and profile != "ext4":
            yield last, cut, True


def states(log, profile):
    """(marks before the crash, tree) of every state."""
    found = set()
    for at in range(len(log) + 1):
        effects = [i for i in range(at) if log[i].kind in (*NAMES, *DATA)]
        needs = {i: needed(log, i, profile) for i in effects}
        forced = {i for i in effects if is_forced(log, i, at, profile)}
        for i in list(forced):
            forced |= needs[i]
        marks = sum(entry.kind in MARKS for entry in log[:at])
        free = [i for i in effects if i not in forced]
        for flags in itertools.product((False, True), repeat=len(free)):
            kept = sorted(forced | {i for i, flag in zip(free, flags, strict=True) if flag})
            if all(needs[i] <= set(kept) for i in kept):
                for torn in (None, *tears(log, kept, forced, profile)):
                    found.add((marks, tree_of(log, kept, torn)))
    return found


def contents(disk):
    """Paths with contents; None for folders."""
    found, waiting = set(), [("", disk.tree.root)]
    while waiting:
        begin, node = waiting.pop()
        for name, one in node.entries.items():
            path = f"{begin}/{name}"
            found.add((path, None if one.is_dir else bytes(one.data)))
            if one.is_dir:
                waiting.append((path, one))
    return frozenset(found)


def do(disk, steps, *, between=True):
    """Steps as (operation, file, file, number); what cannot be done is left out."""
    paths = ("/a", "/b", "/d/c", "/d/e")
    fds = {}
    for number, (operation, one, two, size) in enumerate(steps):
        path, other = paths[one], paths[two]
        if not between and (one < 2) != (two < 2):
            other = path
        try:
            if operation == "make":
                if path.startswith("/d"):
                    disk.makedirs("/d")
                fds.setdefault(path, disk.open(path, os.O_CREAT | os.O_RDWR))
            elif operation == "write":
                chunk = bytes([65 + number]) * (100 + 300 * (size % 3))
                disk.pwrite(fds[path], memoryview(chunk), 250 * (size // 3))
            elif operation in ("fsync", "fail"):
                disk._fsync(fds[path], 5 if operation == "fail" else None)
            elif operation == "folder":
                disk.fsync_dir("/d" if two % 2 else "/")
            elif operation == "rename":
                disk.rename(path, other)
                if path != other:
                    fds[other] = fds.pop(path)
            elif operation == "unlink":
                disk.unlink(path)
                fds.pop(path)
            elif operation == "truncate":
                disk.truncate(fds[path], 200 * (size % 3))
            elif operation == "close":
                disk.close(fds.pop(path))
            else:
                disk.mark(MARKS[size % 2], "call")
        except (OSError, KeyError):
            continue


STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3), st.integers(0, 3), st.integers(0, 8)),
    min_size=4, max_size=16,
)


def enumerated(log, profile):
    found = CrashStates(log, profile, budget=UNLIMITED)
    told = [(found.log.context[crash.at], contents(found.disk(crash))) for crash in found]
    assert found.whole
    return told


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("between", [False, True])
@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_the_states_are_those_of_the_brute_force_enumerator(profile, between, steps):
    disk = SimulatedDisk()
    do(disk, steps, between=between)
    log = disk.log[:LOG_MAX]
    told = enumerated(log, profile)
    assert len(told) == len(set(told)), "a state was told twice"
    assert set(told) == states(log, profile)


def test_a_store_s_usual_way_to_write_a_file_counted_by_hand():
    """create, write, fsync, rename, fsync of the folder: what each profile leaves, by number."""
    disk = SimulatedDisk()
    fd = disk.open("/a", os.O_CREAT | os.O_RDWR)
    disk.pwrite(fd, memoryview(b"x" * 100), 0)
    disk.fsync(fd)
    disk.rename("/a", "/b")
    disk.fsync_dir("/")
    assert {tree for _, tree in enumerated(disk.log, "posix")} == {
        frozenset(), frozenset({("/a", b"")}), frozenset({("/a", b"x" * 100)}),
        frozenset({("/a", bytes(100))}), frozenset({("/b", b"x" * 100)}),
    }
    assert {tree for _, tree in enumerated(disk.log, "ext4")} == {
        frozenset(), frozenset({("/a", b"")}), frozenset({("/a", b"x" * 100)}),
        frozenset({("/b", b"x" * 100)}),
    }


@given(steps=STEPS)
@settings(max_examples=60, deadline=None)
def test_the_least_state_at_the_end_is_the_durable_image(steps):
    disk = SimulatedDisk()
    do(disk, steps, between=False)
    found = CrashStates(disk.log)
    assert contents(found.disk(Crash(len(disk.log)))) == contents(disk.durable())
    every = Crash(len(disk.log), tuple(range(len(disk.log))))
    assert contents(found.disk(every)) == contents(disk)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_states_of_a_disk_that_was_not_empty_build_on_what_was_there(profile):
    first = SimulatedDisk(profile=profile)
    do(first, [("make", 2, 0, 0), ("write", 2, 0, 2), ("make", 0, 0, 0)])
    before = CrashStates(first.log, profile).image(Crash(99, tuple(range(99))))
    disk = disk_of(before, profile)
    assert contents(disk) == contents(first)
    assert not disk.log
    do(disk, [("make", 2, 0, 0), ("write", 2, 0, 4), ("rename", 0, 1, 0), ("unlink", 2, 0, 0)])
    found = CrashStates(disk.log, profile, disk.tree.base)
    trees = {contents(found.disk(crash)) for crash in found}
    assert contents(first) in trees
    assert contents(disk) in trees
    assert all(dict(tree).keys() <= {"/d", "/d/c", "/a", "/b"} for tree in trees)


def test_what_a_crash_says_is_clamped_to_what_the_profile_allows():
    disk = SimulatedDisk()
    do(disk, [("make", 0, 0, 0), ("write", 0, 0, 2), ("write", 0, 0, 5), ("rename", 0, 1, 0)])
    ordered = CrashStates(disk.log, "ext4")
    whole = contents(disk)
    assert contents(ordered.disk(Crash(1000, tuple(range(1000))))) == whole
    assert contents(ordered.disk(Crash(4, (3,)))) == frozenset(), "a rename needs the creation"
    assert contents(ordered.disk(Crash(3, (0, 2)))) == {("/a", b"")}, "a write needs the one before it"
    torn = dict(contents(CrashStates(disk.log).disk(Crash(4, (0, 1, 2, 3), torn=10_000))))
    assert len(torn["/b"]) in (512, 700)


def test_a_budget_cuts_off_what_lacks_most_and_says_so():
    disk = SimulatedDisk()
    do(disk, [("make", one, 0, 0) for one in range(4)] + [("write", one, 0, 2) for one in range(4)])
    every, few = CrashStates(disk.log, budget=UNLIMITED), CrashStates(disk.log, budget=10)
    told, cut = list(every), list(few)
    assert every.whole
    assert not few.whole
    assert set(map(str, (contents(few.disk(one)) for one in cut))) < set(
        map(str, (contents(every.disk(one)) for one in told))
    )
    assert told[: len(disk.log)] == [Crash(at, tuple(range(at))) for at in range(len(disk.log))]
