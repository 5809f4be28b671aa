"""Whose code an error comes from: the user's frame of a traceback."""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType

from harness.errors import PldRuleError

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def is_library(path: str) -> bool:
    """Whether a file is the harness's or a library's, not the user's."""
    return path.startswith(PACKAGE) or path.startswith(_LIBRARIES)


def user_frame_in(frame: FrameType | None) -> FrameType | None:
    """The innermost of a running program's frames that is neither the harness's nor a library's."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_frame_of(frame: FrameType | None) -> tuple[CodeType | None, int]:
    """The code and the instruction of `user_frame_in`."""
    found = user_frame_in(frame)
    return (None, -1) if found is None else (found.f_code, found.f_lasti)


def user_frame(error: BaseException) -> tuple[CodeType | None, int]:
    """The innermost frame of a traceback that is the user's: not the harness's own and, if there is
    any other, not a library's."""
    found: tuple[CodeType | None, int] = (None, -1)
    library: tuple[CodeType | None, int] = (None, -1)
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(_LIBRARIES):
            library = (code, step.tb_lasti)
        elif not code.co_filename.startswith(PACKAGE):
            found = (code, step.tb_lasti)
        step = step.tb_next
    if found[0] is None and isinstance(error, PldRuleError):
        found = error.at
    return found if found[0] is not None else library
