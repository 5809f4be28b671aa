"""Every use that the debugging guide documents, with only the import line changed."""

import hashlib
import logging

import pytest
import torch

from systems.store import UcmConnectorFactory

BLOCK = (4 * 2, 16, 4, 32)  # (layers * 2, block size, heads, head dim)


def test_the_registry_can_be_printed():
    assert {"UcmPipelineStore", "UcmPosixStore", "UcmCacheStore"} <= set(UcmConnectorFactory._registry)
    for loader in UcmConnectorFactory._registry.values():
        assert callable(loader)


@pytest.mark.parametrize("name", ["UcmPipelineStore", "UcmPosixStore", "UcmCacheStore"])
def test_each_connector_round_trips(name, tmp_path, data, ids):
    store = UcmConnectorFactory.create_connector(name, {"storage_path": str(tmp_path)})
    source = data(3, 5)
    assert store.wait(store.dump(ids(3), 0, source)) == 0
    assert store.commit(ids(3), [True] * 3) == [0, 0, 0]
    target = torch.zeros_like(source)
    assert store.wait(store.load(ids(3), 0, target)) == 0
    assert torch.equal(source, target)
    store.close()


def test_an_unknown_connector_names_the_known_and_the_nearest():
    with pytest.raises(
        ValueError, match=r"^Unknown connector: UcmPosixStor; registered: .*; nearest: UcmPosixStore$"
    ):
        UcmConnectorFactory.create_connector("UcmPosixStor", {})
    with pytest.raises(ValueError, match=r"^Unknown connector: \['UcmPosixStore'\]; registered: "):
        UcmConnectorFactory.create_connector(["UcmPosixStore"], {})


def test_ten_md5_ids_are_looked_up(create):
    store = create()
    block_ids = [hashlib.md5(f"block_{i}".encode()).digest() for i in range(10)]
    results = store.lookup(block_ids)
    assert results == [False] * 10
    assert sum(results) == 0


def test_a_kv_tensor_is_dumped_polled_committed_and_loaded(create, data, ids):
    store = create()
    [block_id] = ids(1)
    kv = data(*BLOCK)
    task = store.dump(block_ids=[block_id], offset=0, src_tensor=kv)
    while not store.check(task)[1]:
        pass
    assert store.check(task) == (0, True)
    assert store.wait(task) == 0
    assert store.lookup([block_id]) == [False]
    store.commit([block_id], [True])
    assert store.lookup([block_id]) == [True]
    target = torch.empty_like(kv)
    assert store.wait(store.load(block_ids=[block_id], offset=0, dst_tensor=target)) == 0
    assert torch.equal(kv, target)


def test_the_corruption_report(create, data, ids):
    store = create()
    kv = data(2, 8)
    store.wait(store.dump(ids(1), 0, kv))
    store.commit(ids(1), [True])
    target = torch.zeros_like(kv)
    store.wait(store.load(ids(1), 0, target))
    report = {
        "difference": (kv - target).abs().max().item(),
        "source % 512": kv.data_ptr() % 512,
        "target % 512": target.data_ptr() % 512,
    }
    assert report["difference"] == 0.0


def test_the_probes(create, data, ids):
    store = create()
    for _ in range(3):
        assert sum(store.lookup(ids(1000))) == 0
    source = data(100, 256)
    assert store.wait(store.dump(ids(100), 0, source)) == 0
    store.commit(ids(100), [True] * 100)
    target = torch.zeros_like(source)
    assert store.wait(store.load(ids(100), 0, target)) == 0
    assert torch.equal(source, target)


def test_what_a_store_tells_of_itself(create, tmp_path, pipeline):
    store, other = create(), create()
    assert store.stages == pipeline.split("|")
    assert store.storage_path == str(tmp_path / "kv")
    assert isinstance(store.cc_store(), int)
    assert store.cc_store() == store.cc_store() != other.cc_store()


def test_the_default_pipeline_is_cache_on_posix(tmp_path):
    store = UcmConnectorFactory.create_connector("UcmPipelineStore", {"storage_path": str(tmp_path)})
    assert store.stages == ["Cache", "Posix"]
    store.close()


def test_the_documented_lines_are_logged(tmp_path, data, ids, caplog, monkeypatch):
    monkeypatch.setenv("UNIFIED_CACHE_LOG_LEVEL", "DEBUG")
    caplog.set_level(logging.DEBUG, "ucm")
    path = str(tmp_path / "kv")
    store = UcmConnectorFactory.create_connector(
        "UcmPipelineStore", {"storage_path": path, "cache_bytes": 8 << 20}
    )
    dump = store.dump(ids(2), 0, data(2, 3))
    store.wait(dump)
    store.commit(ids(2), [True, False])
    store.lookup(ids(4))
    load = store.load(ids(1), 0, data(1, 3))
    store.wait(load)
    for line in (
        "[UCM.Factory] creating connector UcmPipelineStore",
        "[UCM.Pipeline] pipeline stages ['Cache', 'Posix']",
        f"[UCM.Posix] storage path {path}",
        "[UCM.Cache] buffer pool initialised: 8 buffers",
        f"[UCM.Store] dump: task_id={dump.id}, blocks=2",
        "[UCM.Store] lookup: 4 blocks, hit: 1",
        f"[UCM.Store] load: task_id={load.id}, blocks=1",
    ):
        assert line in caplog.messages
    store.close()


def test_the_level_comes_from_the_environment(create, caplog, monkeypatch):
    monkeypatch.setenv("UNIFIED_CACHE_LOG_LEVEL", "error")
    store = create()
    caplog.clear()
    store.lookup([])
    assert caplog.messages == []
    monkeypatch.setenv("UNIFIED_CACHE_LOG_LEVEL", "info")
    create().lookup([])
    assert caplog.messages[-1] == "[UCM.Store] lookup: 0 blocks, hit: 0"
    monkeypatch.setenv("UNIFIED_CACHE_LOG_LEVEL", "DEBIG")
    create()
    assert any("allowed DEBUG, INFO" in line and "nearest: DEBUG" in line for line in caplog.messages)
