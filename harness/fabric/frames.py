"""Whose code an error comes from: the user's frame of a traceback."""

from __future__ import annotations

import os
import sysconfig
from types import CodeType, FrameType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(
    sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def user_frame_of(frame: FrameType | None) -> tuple[CodeType | None, int]:
    """The innermost of a running program's frames that is neither the harness's nor a library's."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) and not path.startswith(_LIBRARIES):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None, -1


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
    return found if found[0] is not None else library
