"""The command line: `rankfault`. Exit codes, and how errors look.

0    nothing found (replay: not reproduced)
1    findings (replay: reproduced)
2    wrong usage: one line that names the valid choices
3    internal error: one line, and the traceback in a file (or with --traceback)
4    UNKNOWN: nothing was proven: a fault that never fired, a store that is not installed here
130  stopped with Ctrl-C
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from harness.cli.app import app
from harness.cli.output import complain
from harness.errors import EngineError, NotHere, NotYet, UsageError, one_line
from harness.in_flight import home

USAGE = 2
INTERNAL = 3
UNKNOWN = 4
STOPPED = 130
BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point of `rankfault`; exits the process."""
    words = list(sys.argv[1:] if argv is None else argv)
    shown = "--traceback" in words
    words = [word for word in words if word != "--traceback"]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # a user's file may import its neighbours
    raise SystemExit(_exit_code(words, shown=shown))


def _exit_code(words: list[str], *, shown: bool) -> int:
    try:
        code: Any = app(words, prog_name="rankfault", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        return BROKEN_PIPE
    except SystemExit as error:
        if isinstance(error.__context__, OSError):  # typer's answer to a broken pipe is 1
            _silence()
            return BROKEN_PIPE
        complain(f"the program called sys.exit({error.code!r}) outside of its ranks")
        return USAGE
    except KeyboardInterrupt:
        return STOPPED
    except NotHere as error:
        complain(one_line(error))
        return UNKNOWN
    except (UsageError, NotYet) as error:
        complain(one_line(error))
        return USAGE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename:
            return _internal(error, shown=shown)
        _silence()
        complain(f"the output cannot be written: {error.strerror}")
        return USAGE
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own errors
            complain(f"{' '.join(str(error.format_message()).split())} See rankfault --help.")
            return USAGE
        return _internal(error, shown=shown)
    except BaseException as error:  # asyncio.CancelledError, a test's outcome: no rank may catch it
        complain(f"the program raised {one_line(error)}, which is no Exception; raise one instead")
        return USAGE
    return code if isinstance(code, int) else 0


def _silence() -> None:
    """Nobody takes the output any more; the interpreter's own flush at exit must not fail again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(error: Exception, *, shown: bool) -> int:
    text = "".join(traceback.format_exception(error))
    where = "" if shown else "; see it with --traceback"
    if shown:
        complain(text, prefix="")
    else:
        file = home() / "error.txt"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            where = f"; the traceback is in {file}"
        except OSError:
            pass
    what = one_line(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    complain(f"{' '.join(what.split())}; please report it{where}", prefix="internal error: ")
    return INTERNAL


__all__ = ["main"]
