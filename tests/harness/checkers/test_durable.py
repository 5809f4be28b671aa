"""The rules on a disk's operation log: each broken once, each kept once, none without a promise."""

import os
from types import SimpleNamespace

import pytest

from harness import Durable, SimulatedDisk


class Writer:
    """Writes files on a disk in whatever order a test asks for."""

    def __init__(self):
        self.disk = SimulatedDisk()
        self.fds = {}

    def write(self, path, data=b"x"):
        if path not in self.fds:
            self.fds[path] = self.disk.open(path, os.O_CREAT | os.O_RDWR)
        self.disk.pwrite(self.fds[path], memoryview(data), 0)

    def sync(self, path):
        self.disk.fsync(self.fds[path])

    def kinds(self):
        run = SimpleNamespace(observed={"disk": self.disk})
        return [finding.kind for finding in Durable().check(run)]


def committed(writer, *steps, promise="durable"):
    """A call with these steps between its marks."""
    writer.disk.mark("begun", "commit")
    for step in steps:
        step()
    writer.disk.mark("acknowledged", "commit", promise)


@pytest.fixture
def writer():
    found = Writer()
    found.disk.makedirs("/d")
    found.disk.fsync_dir("/")
    found.write("/d/a.tmp")
    return found


def test_file_rename_folder_in_this_order_breaks_nothing(writer):
    writer.sync("/d/a.tmp")
    disk = writer.disk
    committed(writer, lambda: disk.rename("/d/a.tmp", "/d/a"), lambda: disk.fsync_dir("/d/"))
    assert writer.kinds() == []


def test_a_rename_needs_the_data_durable_before(writer):
    disk = writer.disk
    committed(
        writer, lambda: disk.rename("/d/a.tmp", "/d/a"), lambda: writer.sync("/d/a.tmp"),
        lambda: disk.fsync_dir("/d"), promise="whole",
    )
    assert writer.kinds() == ["rename_before_fsync"]


def test_a_write_after_the_fsync_counts_as_well(writer):
    writer.sync("/d/a.tmp")
    disk = writer.disk
    committed(
        writer, lambda: writer.write("/d/a.tmp", b"y"), lambda: disk.rename("/d/a.tmp", "/d/a"),
        lambda: disk.fsync_dir("/d"),
    )
    assert writer.kinds() == ["rename_before_fsync"]


@pytest.mark.parametrize("promise", ["durable", "whole"])
def test_the_folder_is_to_be_durable_before_the_acknowledgement(writer, promise):
    writer.sync("/d/a.tmp")
    disk = writer.disk
    disk.fsync_dir("/d")
    committed(writer, lambda: disk.rename("/d/a.tmp", "/d/a"), promise=promise)
    disk.fsync_dir("/d")
    assert writer.kinds() == (["folder_not_synced"] if promise == "durable" else [])


def test_a_new_folder_s_own_name_is_to_be_durable_too(writer):
    disk = writer.disk
    disk.makedirs("/d/new/deep")
    disk.fsync_dir("/d/new")
    writer.write("/d/new/deep/a.tmp")
    writer.sync("/d/new/deep/a.tmp")
    steps = (
        lambda: disk.rename("/d/new/deep/a.tmp", "/d/new/deep/a"),
        lambda: disk.fsync_dir("/d/new/deep"),
    )
    committed(writer, *steps)
    assert writer.kinds() == ["parent_not_synced"]


def test_a_folder_made_durable_from_below_upwards_breaks_nothing(writer):
    disk = writer.disk
    disk.makedirs("/d/new")
    writer.write("/d/new/a.tmp")
    writer.sync("/d/new/a.tmp")
    steps = (
        lambda: disk.rename("/d/new/a.tmp", "/d/new/a"), lambda: disk.fsync_dir("/d/new"),
        lambda: disk.fsync_dir("/d"),
    )
    committed(writer, *steps)
    assert writer.kinds() == []


def test_nothing_is_written_under_the_final_name_nor_after_the_acknowledgement(writer):
    writer.sync("/d/a.tmp")
    disk = writer.disk
    committed(
        writer, lambda: disk.rename("/d/a.tmp", "/d/a"), lambda: writer.write("/d/a.tmp"),
        lambda: disk.fsync_dir("/d"),
    )
    writer.write("/d/a.tmp")
    assert writer.kinds() == ["written_after_rename", "written_after_acknowledgement"]


def test_the_old_file_stays_until_the_rename(writer):
    writer.sync("/d/a.tmp")
    writer.write("/d/a")
    disk = writer.disk
    committed(
        writer, lambda: disk.unlink("/d/a"), lambda: disk.rename("/d/a.tmp", "/d/a"),
        lambda: disk.fsync_dir("/d"),
    )
    assert writer.kinds() == ["removed_before_rename"]


def test_without_a_promise_nothing_is_broken(writer):
    committed(writer, lambda: writer.disk.rename("/d/a.tmp", "/d/a"), promise="")
    writer.write("/d/a.tmp")
    assert writer.kinds() == []
    assert list(Durable().check(SimpleNamespace(observed={"result": []}))) == []
