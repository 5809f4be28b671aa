"""Each wrong value is one line: field, given, allowed, nearest."""

import pytest

from systems.store.config import RULES, StoreConfig, configured
from systems.store.errors import ConfigError, StoreError

PATH = {"storage_path": "/data/kv"}


@pytest.mark.parametrize(
    ("given", "field", "parts"),
    [
        ({}, "storage_path", ["not given", "absolute path"]),
        ({"storage_path": "kv"}, "storage_path", ["given 'kv'", "absolute", "nearest: '/kv'"]),
        ({"storage_path": 3}, "storage_path", ["given 3", "a string"]),
        ({"storage_path": "/a\0b"}, "storage_path", ["nearest: '/ab'"]),
        (
            {**PATH, "store_pipeline": "Cach|Posix"},
            "store_pipeline",
            ["'Cach' is no stage", "nearest: 'Cache|Posix'"],
        ),
        (
            {**PATH, "store_pipeline": "Posix|Cache"},
            "store_pipeline",
            ["allowed", "nearest: 'Cache|Posix'"],
        ),
        ({**PATH, "store_pipeline": ""}, "store_pipeline", ["allowed 'Posix' or 'Cache|Posix'"]),
        ({**PATH, "store_pipeline": None}, "store_pipeline", ["given None"]),
        ({**PATH, "store_pipeline": "cache|posix"}, "store_pipeline", ["nearest: 'Cache|Posix'"]),
        ({**PATH, "store_pipeline": "posix"}, "store_pipeline", ["nearest: 'Posix'"]),
        ({**PATH, "block_size": -1}, "block_size", ["given -1", "from 0 to", "nearest: 0"]),
        ({**PATH, "block_size": "4096"}, "block_size", ["given '4096'", "an integer", "nearest: 4096"]),
        ({**PATH, "block_size": True}, "block_size", ["given True", "an integer"]),
        ({**PATH, "block_size": 1.5}, "block_size", ["nearest: 1"]),
        ({**PATH, "shards": 0}, "shards", ["nearest: 1"]),
        ({**PATH, "io_direct": 1}, "io_direct", ["given 1", "True or False", "nearest: True"]),
        ({**PATH, "io_direct": "false"}, "io_direct", ["nearest: False"]),
        ({**PATH, "alignment": 1000}, "alignment", ["allowed 512 or 4096", "nearest: 512"]),
        ({**PATH, "alignment": float("inf")}, "alignment", ["given inf"]),
        ({**PATH, "strict_alignment": True}, "strict_alignment", ["only with io_direct True"]),
        (
            {**PATH, "strict_alignment": True, "io_direct": True, "block_size": 5000},
            "block_size",
            ["multiple of 4096", "nearest: 8192"],
        ),
        (
            {**PATH, "durability": "fsnc"},
            "durability",
            ["'none' or 'flush' or 'fsync'", "nearest: 'fsync'"],
        ),
        ({**PATH, "cache_bytes": 1}, "cache_bytes", ["nearest: 4096"]),
        ({**PATH, "workers": 10**9}, "workers", ["from 1 to 256", "nearest: 256"]),
        ({**PATH, "workers": float("nan")}, "workers", ["given nan"]),
        ({**PATH, "workers": float("inf")}, "workers", ["nearest: 256"]),
        ({**PATH, "timeout_ms": None}, "timeout_ms", ["given None"]),
        ({**PATH, "writer": "a/b"}, "writer", ["without '/'"]),
        ({**PATH, "writer": "w" * 200}, "writer", ["64"]),
        ({**PATH, "writer": "é" * 64}, "writer", ["64 bytes"]),
        ({**PATH, "writer": "\ud800"}, "writer", ["printable"]),
        ({**PATH, "cache_shared": "a\nb"}, "cache_shared", ["printable"]),
        ({"storage_path": "/kv/\ud800/x"}, "storage_path", ["absolute", "nearest: '/kv//x'"]),
        ({**PATH, "block_size": 9, "capacity_bytes": 8}, "capacity_bytes", ["block_size", "nearest: 9"]),
        ({**PATH, "wrokers": 3}, "wrokers", ["no such key", "nearest: workers"]),
        ({**PATH, 3: 3}, "3", ["no such key"]),
    ],
)
def test_a_wrong_value_is_told_in_one_line(given, field, parts):
    with pytest.raises(ConfigError) as caught:
        configured(given)
    text = str(caught.value)
    assert text.startswith(f"{field}: ")
    assert "\n" not in text
    for part in parts:
        assert part in text
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, StoreError)


def test_what_is_no_dict_is_told():
    with pytest.raises(ConfigError, match=r"^config: given \[\]; allowed a dict"):
        configured([])


def test_defaults_are_allowed_and_every_field_has_its_rule():
    config = configured(PATH)
    assert configured(config) == config
    assert set(RULES) == set(StoreConfig.__struct_fields__)
    assert configured({**PATH, "store_pipeline": " Cache | Posix "}).store_pipeline == "Cache|Posix"


def test_keys_of_other_stores_are_ignored_with_a_warning(caplog):
    configured({**PATH, "device_id": 0, "unique_id": "u"})
    assert sum("ignored" in line for line in caplog.messages) == 2
