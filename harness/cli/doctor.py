"""`rankfault doctor NAME CONFIG`: what a system's own checks say of a configuration."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from harness import registry
from harness.checkup import FAIL, OK, WARN, Check
from harness.cli.output import Output, table, width
from harness.errors import UnknownName, UsageError

BYTES_MAX = 1 << 20


def run_doctor(name: str, config: str, *, json: bool) -> int:
    """The doctor command: 0 where nothing fails (warnings may stand), 1 otherwise."""
    known = registry.doctors()
    if name not in known:
        raise UnknownName("doctor", name, known)
    output = Output(json=json)
    checks = known[name].examine(read_config(config))
    rows = [(check.name, _line(check)) for check in checks]
    output.say("\n".join(table(rows, width())))
    verdicts = [check.verdict for check in checks]
    output.say("\n" + ", ".join(f"{verdicts.count(one)} {one}" for one in (OK, WARN, FAIL)))
    output.give([check._asdict() for check in checks])
    return 1 if FAIL in verdicts else 0


def _line(check: Check) -> str:
    remedy = f" -> {check.remedy}" if check.remedy else ""
    return f"{check.verdict.upper() if check.verdict == FAIL else check.verdict}: {check.text}{remedy}"


def read_config(name: str) -> dict[str, Any]:
    """The object in a JSON or TOML file, or on stdin (`-`); UsageError in one line."""
    shown = "stdin" if name == "-" else name
    data = _bytes(name, shown)
    try:
        text = data.decode()
        found = tomllib.loads(text) if _is_toml(name, text) else json.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown}: no text: byte {error.start} is no UTF-8") from None
    except json.JSONDecodeError as error:
        what = "cut short or empty" if error.pos >= len(text.rstrip()) else error.msg
        raise UsageError(f"{shown}:{error.lineno}: no JSON: {what} (column {error.colno})") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown}: no TOML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UsageError(f"{shown}: no configuration: nested without end") from None
    if not isinstance(found, dict):
        raise UsageError(f"{shown}: given a {type(found).__name__}; allowed an object of keys and values")
    return found


def _bytes(name: str, shown: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(f"{shown!r}: {error}") from None
    if len(data) > BYTES_MAX:
        raise UsageError(f"{shown}: more than {BYTES_MAX} bytes; no configuration is as long")
    return data


def _is_toml(name: str, text: str) -> bool:
    """By the name's ending; on stdin by the first sign."""
    if name.endswith((".toml", ".json")):
        return name.endswith(".toml")
    return bool(text.strip()) and not text.lstrip().startswith(("{", "[{", "\""))
