"""c10d's stores without sockets: what they hold, who waits, limits in virtual time."""

from __future__ import annotations

import pytest

USE = """
import os
host, port = os.environ["MASTER_ADDR"], 29600
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.{kind}
"""


@pytest.mark.parametrize(
    "kind", ["TCPStore(host, port, size, rank == 0)", "FileStore('/nowhere/file', size)"]
)
def test_stores_of_one_address_share_their_keys(script, begin, kind):
    outcome = script(f"""
        {USE.format(kind=kind).strip().replace(chr(10), chr(10) + "        ")}
        if rank == 0:
            store.set("key", "value")
        assert store.get("key") == b"value"
        store.wait(["key"])
        assert store.check(["key"]) and not store.check(["key", "other"])
        store.add("count", 2)
        while store.add("count", 0) < 2 * size:
            pass
        assert store.compare_set("new", "", "first") in (b"first",)
        assert store.compare_set("new", "", "second") == b"first"
        prefixed = dist.PrefixStore("mine", store)
        prefixed.set(str(rank), "x")
        assert store.get(f"mine/{{rank}}") == b"x"
        assert store.num_keys() >= 3
        assert not store.delete_key("absent")
        store.queue_push(f"queue {{rank}}", "a")
        assert store.queue_pop(f"queue {{rank}}") == b"a"
        store.append("log", "x")
        assert store.multi_get(["key", "new"]) == [b"value", b"first"]
    """, 3, begin=begin)
    assert [found.message for found in outcome.findings] == []


def test_a_hash_store_is_nobody_elses(script, begin):
    outcome = script("""
        store = dist.HashStore()
        assert not store.check(["key"])
        store.set("key", "value")
        assert store.get("key") == b"value"
    """, 2, begin=begin)
    assert outcome.findings == ()


def test_a_key_that_never_comes_blocks(script, begin):
    outcome = script("""
        store = dist.TCPStore("localhost", 1, 2, False)
        store.get("absent")
    """, 2, begin=begin)
    assert outcome.run.ended == "blocked"
    (found,) = outcome.findings
    assert "rank 0 waits in store_get for 'absent' at " in found.message
    assert "program.py:" in found.message


def test_a_limit_that_the_program_gave_ends_the_wait(script, begin):
    outcome = script("""
        import time
        store = dist.TCPStore("localhost", 1, 2, False, timeout=timedelta(seconds=3))
        for wait in (lambda: store.get("absent"), lambda: store.wait(["absent"], timedelta(seconds=2))):
            begun = time.time()
            try:
                wait()
            except dist.DistStoreError as error:
                print(round(time.time() - begun), "absent" in str(error))
    """, 1, begin=begin)
    assert outcome.run.printed == ["3 True\n2 True\n"]


def test_the_default_groups_store(script):
    outcome = script("""
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set("k", "v")
        assert store.get("k") == b"v"
        group = dist.new_group([0, 1])
        dist.distributed_c10d._store_based_barrier(rank, store, "mine", size, timedelta(seconds=9))
    """, 2)
    assert [found.message for found in outcome.findings] == []
