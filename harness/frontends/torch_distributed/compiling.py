"""torch.compile in a simulated world: what it makes runs as ordinary Python ("force_eager").

A compiler takes seconds for each shape where a plan takes milliseconds, it would trace this harness's own
groups, and what it keeps is kept by code object, for all ranks at once. torch's own stance says that
compiled functions are to run as they are written; here it is in force while a rank's code runs, and the
process's own is put back after it. `torch.compile` itself stays torch's: it makes the same wrapper
(`_orig_mod` included).

Not modelled: what a compiler changes (fused collectives, reordered ones, its numerics); torch.export; a
stance that the program sets for itself beyond its next turn.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch

from harness.frontends.torch_distributed.environment import Entry

_FRAMES = "torch._dynamo.eval_frame"  # takes a second or two to import, so only who compiles does


class _Eager:
    """Whether compiled functions run as they are written, for the whole process."""

    _on = False
    _before: tuple[Any, Any] | None = None
    _eager: Any = None

    @property
    def on(self) -> bool:
        """Whether they do now."""
        return _Eager._on

    @on.setter
    def on(self, value: bool) -> None:
        _Eager._on = value
        if _FRAMES not in sys.modules or not hasattr(torch._dynamo, "optimize"):
            return  # not there yet, or on its way in
        frames: Any = sys.modules[_FRAMES]
        rules: Any = torch._dynamo.trace_rules
        if value:
            if _Eager._before is None:
                _Eager._before = frames._stance, rules.clear_lru_cache
                _Eager._eager = frames.DynamoStance("force_eager")
            frames._stance = _Eager._eager
            # init_process_group clears a table of which each torch.compile makes use: 0.1 s to make anew.
            rules.clear_lru_cache = lambda: None
        elif _Eager._before is not None:
            frames._stance, rules.clear_lru_cache = _Eager._before
            _Eager._before = None


def eager() -> list[Entry]:
    """What a rank sees of the compiler, for environment.py."""
    state, real = _Eager(), torch.compile

    @functools.wraps(real)
    def compile(*args: Any, **kwargs: Any) -> Any:
        importlib.import_module(_FRAMES)
        state.on = True  # it may not have been there when the rank's turn began
        return real(*args, **kwargs)

    return [(state, "on", True), (torch, "compile", compile)]
