"""`rankfault doctor` and `rankfault bench NAME`: files, exit codes, one-line errors."""

from __future__ import annotations

import io
import json
import sys

import pytest

from harness import Bench, Check, Doctor, UsageError, registry
from harness.cli import main
from harness.cli.doctor import read_config


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            main(words)
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return call


@pytest.fixture
def examined(monkeypatch):
    """A doctor whose checks are in the configuration itself."""
    seen = []

    def examine(config):
        seen.append(config)
        if "refuse" in config:
            raise UsageError("refuse: given; allowed not to be")
        return [Check(*one) for one in config.get("checks", [])]

    monkeypatch.setattr(registry, "doctors", lambda: {"store": Doctor("store", examine)})
    return seen


CHECKS = {
    "ok": ["path", "ok", "writable"],
    "warn": ["speed", "warn", "slow", "a faster disk"],
    "fail": ["ids", "fail", "differ", "no hash()"],
}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["ok"], 0), (["ok", "warn"], 0), (["ok", "fail"], 1), (["fail", "warn"], 1), ([], 0)],
)
def test_the_table_and_the_exit_code(cli, examined, tmp_path, verdicts, code):
    (tmp_path / "c.json").write_text(json.dumps({"checks": [CHECKS[one] for one in verdicts]}))
    told, out, err = cli("doctor", "store", "c.json")
    assert (told, err) == (code, "")
    assert "warn" not in verdicts or "speed  warn: slow -> a faster disk" in out.replace("ids    ", "")
    assert "fail" not in verdicts or "FAIL: differ -> no hash()" in out
    assert out.endswith(", ".join(f"{verdicts.count(v)} {v}" for v in ("ok", "warn", "fail")) + "\n")
    told, out, _ = cli("doctor", "store", "c.json", "--json")
    assert told == code
    assert [row["verdict"] for row in json.loads(out)] == verdicts


def test_toml_and_stdin(cli, examined, tmp_path, monkeypatch):
    (tmp_path / "c.toml").write_text('storage_path = "/data"\nworkers = 3\n')
    assert cli("doctor", "store", "c.toml")[0] == 0
    for text in ('{"workers": 4}', "workers = 5\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert cli("doctor", "store", "-")[0] == 0
    assert examined == [{"storage_path": "/data", "workers": 3}, {"workers": 4}, {"workers": 5}]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("c.json", None, ["c.json: No such file"]),
        ("c.json", b"", ["c.json:1: no JSON: cut short or empty"]),
        ("c.json", b'{"storage_path": "/da', ["c.json:1: no JSON:"]),
        ("c.json", b'{"storage_path": "/data",\n', ["no JSON: cut short"]),
        ("c.json", b'{"a": 1}}', ["no JSON: Extra data"]),
        ("c.json", b"[1, 2]", ["given a list; allowed an object"]),
        ("c.json", b"\xff\xfe", ["byte 0 is no UTF-8"]),
        ("c.json", b"[" * 100_000, ["c.json: no configuration: nested"]),
        ("c.json", b"1" * ((1 << 20) + 1), ["more than 1048576 bytes"]),
        ("c.toml", b'storage_path = "/da', ["c.toml: no TOML:"]),
        ("c.json", b'{"refuse": 1}', ["refuse: given; allowed"]),
    ],
)
def test_a_bad_configuration_is_one_line(cli, examined, tmp_path, name, data, words):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    code, out, err = cli("doctor", "store", name)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert all(word in err for word in words), err


def test_a_folder_and_an_unknown_doctor_are_told(cli, examined, tmp_path):
    code, _, err = cli("doctor", "store", str(tmp_path))
    assert (code, "Is a directory" in err) == (2, True)
    code, _, err = cli("doctor", "stor", "c.json")
    assert (code, "did you mean 'store'?" in err) == (2, True)
    with pytest.raises(UsageError, match="embedded null"):
        read_config("a\0b")


@pytest.fixture
def measured(monkeypatch):
    seen = []

    def measure(**options):
        seen.append(options)
        return [{"name": "dump", "value": 3, "unit": "MB/s", "goal": "", "met": None}]

    monkeypatch.setattr(registry, "benches", lambda: {"store": Bench("store", measure)})
    return seen


def test_bench_of_a_system_needs_no_repository(cli, measured, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.cli.bench.ROOT", tmp_path)
    assert cli("bench", "store") == (0, "dump  3 MB/s (for information)\n", "")
    code, out, _ = cli("bench", "store", "--path", "/data", "--pipeline", "Posix", "--direct", "--json")
    assert (code, json.loads(out)[0]["value"]) == (0, 3)
    assert [str(options["path"]) for options in measured] == ["None", "/data"]
    assert (measured[1]["pipeline"], measured[1]["direct"]) == ("Posix", True)


@pytest.mark.parametrize("words", [["--direct"], ["events", "--pipeline", "Posix"]])
def test_a_systems_options_without_it_are_refused(cli, measured, words):
    code, _, err = cli("bench", *words)
    assert (code, "is for a system: rankfault bench store --" in err) == (2, True)


def test_an_unknown_figure_also_offers_the_systems(cli, measured):
    code, _, err = cli("bench", "stor")
    assert (code, "did you mean 'store'?" in err) == (2, True)
