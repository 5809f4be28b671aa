"""The slot of the plan in flight outlives the process that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys

from harness.in_flight import SIZE, InFlight, home, open_slot

PLAN = InFlight('{"format":1}', "pct1", "rankfault hunt ring.py --root-seed 1 --plans 3")
DIES = """
import os, sys
from pathlib import Path
from harness.in_flight import InFlight, open_slot
slot = open_slot(Path(sys.argv[1]))
slot.write(InFlight("first", "default", "x"))
slot.write(InFlight("second", "default", "x"))
os._exit(9)
"""


def test_a_process_that_dies_leaves_its_last_plan(tmp_path):
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert done.returncode == 9
    slot = open_slot(tmp_path)
    assert slot is not None
    assert slot.left == InFlight("second", "default", "x")
    slot.clear()
    slot.close()
    again = open_slot(tmp_path)
    assert again is not None
    assert again.left is None
    again.close()


def test_a_slot_belongs_to_one_process_at_a_time(tmp_path):
    one = open_slot(tmp_path)
    assert one is not None
    one.write(PLAN)
    two = open_slot(tmp_path)
    assert two is not None
    assert two.left is None
    two.close()
    one.close()
    assert sorted(os.listdir(tmp_path)) == ["in-flight", "in-flight-1"]
    again = open_slot(tmp_path)
    assert again is not None
    assert again.left == PLAN
    again.close()


def test_a_plan_too_large_for_the_slot_is_not_kept(tmp_path):
    slot = open_slot(tmp_path)
    assert slot is not None
    slot.write(PLAN)
    slot.write(InFlight("x" * SIZE, "default", ""))
    slot.close()
    again = open_slot(tmp_path)
    assert again is not None
    assert again.left is None
    again.close()


def test_what_is_no_plan_in_the_slot_is_ignored(tmp_path):
    (tmp_path / "in-flight").write_bytes(b"\x05\0\0\0\0\0\0\0hello")
    slot = open_slot(tmp_path)
    assert slot is not None
    assert slot.left is None
    slot.close()


def test_without_a_writable_folder_there_is_no_slot(tmp_path):
    (tmp_path / "file").write_text("")
    assert open_slot(tmp_path / "file" / "below") is None


def test_the_home_follows_the_environment(monkeypatch):
    monkeypatch.delenv("RANKFAULT_HOME", raising=False)
    assert str(home()) == ".rankfault"
    monkeypatch.setenv("RANKFAULT_HOME", "elsewhere")
    assert str(home()) == "elsewhere"
