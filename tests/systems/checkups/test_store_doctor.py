"""The store's doctor: what can be wrong is a check with a remedy, and nothing is left behind."""

import json
import os

import pytest
import torch

from harness import UsageError
from systems.checkups import store_doctor
from systems.checkups.store_doctor import examine
from systems.store.config import configured
from systems.store.errors import StorageUnusable
from systems.store.shared_pool import SharedPool


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The same checks on less data."""
    monkeypatch.setattr(store_doctor, "TRANSFER_BYTES", 4 << 20)
    monkeypatch.setattr(store_doctor, "LOOKUPS", 1)


@pytest.fixture
def no_child(monkeypatch):
    monkeypatch.setattr(store_doctor, "_stable", lambda store: store_doctor.Check("block ids", "ok", ""))


def by_name(checks):
    return {check.name: check for check in checks}


def test_a_right_configuration_passes_every_check_and_leaves_nothing(tmp_path):
    folder = tmp_path / "kv"
    folder.mkdir()
    checks = examine({"storage_path": str(folder), "connector": "UcmCacheStore"})
    assert [check for check in checks if check.verdict == "fail"] == []
    assert [check.name for check in checks] == [
        "connector", "pipeline", "storage path", "space", "direct I/O", "device", "alignment",
        "round trip", "block ids", "lookup latency", "transfer speed", "memory", "leaks",
    ]  # fmt: skip
    assert "all 8 blocks" in by_name(checks)["block ids"].text
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        ({"connector": "UcmPosixStor"}, "connector", ["nearest: UcmPosixStore"]),
        ({"store_pipeline": "Cach|Posix"}, "pipeline", ["nearest: 'Cache|Posix'"]),
        ({"storage_path": "kv"}, "values", ["absolute path", "nearest: '/kv'"]),
    ],
)
def test_a_wrong_name_is_a_check_with_the_nearest(tmp_path, given, name, words):
    check = examine({"storage_path": str(tmp_path), **given})[-1]
    found = by_name(examine({"storage_path": str(tmp_path), **given}))[name]
    assert found.verdict == "fail"
    assert found.remedy
    assert all(word in found.text for word in words)
    assert check.name != "leaks"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"wrokers": 3}, "wrokers: given 3; no such key; nearest: workers"),
        ({"workers": "3"}, "workers: given '3'; allowed an integer"),
        ({"storage_path": 3}, "storage_path: given 3; allowed a string"),
        ({"store_pipeline": None}, "store_pipeline: given None"),
        ({"strict_alignment": True}, "strict_alignment: given True; allowed only with io_direct True"),
        ({"connector": 3}, "connector: given 3; allowed a string"),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_line(tmp_path, given, text):
    with pytest.raises(UsageError) as caught:
        examine({"storage_path": str(tmp_path), **given})
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_without_a_path_it_is_no_configuration():
    with pytest.raises(UsageError, match="storage_path: not given"):
        examine({})


def test_a_path_that_is_a_file_or_not_there(tmp_path, no_child):
    (tmp_path / "file").write_text("")
    found = by_name(examine({"storage_path": str(tmp_path / "file")}))
    assert (found["storage path"].verdict, "leaks" in found) == ("fail", False)
    found = by_name(examine({"storage_path": str(tmp_path / "a" / "b")}))
    assert found["storage path"].verdict == "warn"
    assert "not there" in found["storage path"].text
    assert found["leaks"].verdict == "ok"
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_path_that_is_not_writable(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = by_name(examine({"storage_path": str(tmp_path)}))
    assert (found["storage path"].verdict, "not writable" in found["storage path"].text) == ("fail", True)


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    def refused(**options):
        raise OSError(30, "Read-only file system", str(tmp_path))

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    found = examine({"storage_path": str(tmp_path)})[-1]
    assert (found.verdict, "Read-only" in found.text) == ("fail", True)


def test_space_and_capacity(tmp_path, no_child, monkeypatch):
    found = by_name(examine({"storage_path": str(tmp_path), "capacity_bytes": 1 << 60}))
    assert (found["space"].verdict, "more than" in found["space"].text) == ("warn", True)
    found = by_name(examine({"storage_path": str(tmp_path), "capacity_bytes": 100}))
    assert (found["space"].verdict, "no room for a block" in found["space"].text) == ("warn", True)
    monkeypatch.setattr(store_doctor, "TRANSFER_BYTES", 1 << 60)
    found = by_name(examine({"storage_path": str(tmp_path)}))
    assert (found["space"].verdict, found["space"].remedy.startswith("free ")) == ("fail", True)


def test_keys_of_another_store_are_a_warning(tmp_path, no_child):
    found = by_name(examine({"storage_path": str(tmp_path), "device_id": 0}))
    assert (found["keys"].verdict, "device_id" in found["keys"].text) == ("warn", True)


def test_a_disk_without_direct_io(tmp_path, no_child, monkeypatch):
    real = store_doctor.opened

    def opened(config, connector="UcmPipelineStore"):
        if config["io_direct"]:
            raise StorageUnusable("takes no direct I/O", 22)
        return real(config, connector)

    monkeypatch.setattr(store_doctor, "opened", opened)
    found = by_name(examine({"storage_path": str(tmp_path), "io_direct": True}))
    assert found["direct I/O"].verdict == "fail"
    assert found["direct I/O"].remedy == "set io_direct False"
    assert by_name(examine({"storage_path": str(tmp_path)}))["direct I/O"].verdict == "ok"


def test_direct_io_with_blocks_that_do_not_fit(tmp_path, no_child):
    odd = {"storage_path": str(tmp_path), "io_direct": True, "block_size": 5000}
    found = by_name(examine(odd))["alignment"]
    assert (found.verdict, "bounce buffer" in found.text) == ("warn", True)
    assert [check for check in examine(odd) if check.verdict == "fail"] == []
    even = by_name(examine({**odd, "block_size": 8192}))["alignment"]
    assert (even.verdict, "fit 4096" in even.text) == ("ok", True)  # the pool's memory is aligned


def test_a_shared_pool_in_use_with_other_values(tmp_path, no_child):
    mine = {"storage_path": str(tmp_path), "block_size": 4096, "cache_bytes": 8192}
    mine["cache_shared"] = f"doctor-{os.getpid()}"
    assert by_name(examine(mine))["shared pool"].verdict == "ok"
    pool = SharedPool(configured(mine))
    try:
        found = by_name(examine({**mine, "cache_bytes": 16384}))["shared pool"]
    finally:
        pool.close()
    assert (found.verdict, "2 of 4096" in found.text) == ("fail", True)


def test_a_store_that_gives_other_bytes_fails(tmp_path, no_child, monkeypatch):
    monkeypatch.setattr(torch, "equal", lambda one, other: False)
    found = by_name(examine({"storage_path": str(tmp_path)}))
    assert found["round trip"].verdict == found["transfer speed"].verdict == "fail"


def test_a_process_that_does_not_find_the_blocks_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(store_doctor, "CHILD", "print(3)")
    found = by_name(examine({"storage_path": str(tmp_path)}))["block ids"]
    assert (found.verdict, "found 3 of 8" in found.text) == ("fail", True)


def test_slow_lookups_and_transfers_and_leaks_are_told(tmp_path, no_child, monkeypatch):
    monkeypatch.setattr(store_doctor, "HEALTHY_MS", 0.0)
    monkeypatch.setattr(store_doctor, "SLOW_MB_S", 1e12)
    monkeypatch.setattr(store_doctor, "LEAK_BYTES", -(1 << 40))
    counts = iter((3, 5))
    monkeypatch.setattr(store_doctor, "_descriptors", lambda: next(counts))
    found = by_name(examine({"storage_path": str(tmp_path)}))
    assert [found[name].verdict for name in ("lookup latency", "transfer speed", "memory", "leaks")] == [
        "warn", "warn", "warn", "fail",
    ]  # fmt: skip
    assert "2 descriptors" in found["leaks"].text
    assert json.dumps([check._asdict() for check in found.values()])
