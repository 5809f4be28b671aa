"""Torch's modes of a thread: gradients, inference mode, autocast. Each lane has its own.

All lanes of a run share one thread, and torch keeps these modes by thread, so they are taken along at
every switch. Inference mode can be changed by a guard only, which puts back what it found when it goes:
the guards of a run are kept until its lanes have ended.

Not modelled: `torch.set_default_dtype` and the like, which torch keeps for the whole process.
"""

from __future__ import annotations

from typing import Any

import torch

DEVICES = ("cpu", "cuda")
Modes = tuple[bool, bool, tuple[Any, ...]]

_grad = torch.is_grad_enabled
_inference = torch.is_inference_mode_enabled
_autocast = torch._C._is_any_autocast_enabled
_last: list[Any] = []  # the guard that keeps the thread as it was; one at a time


def modes() -> Modes:
    """Gradients, inference mode, and autocast by device (empty where it is off)."""
    return _grad(), _inference(), _details() if _autocast() else ()


def _details() -> tuple[Any, ...]:
    by_device = tuple(
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in DEVICES
    )
    return *by_device, torch.is_autocast_cache_enabled()


def set_modes(wanted: Modes, guards: list[Any]) -> None:
    """Make `wanted` the modes of this thread; a guard that it takes is added to `guards`."""
    grad, inference, autocast = wanted
    if _inference() != inference:
        guard = torch._C._InferenceMode(inference)
        guard.__enter__()  # type: ignore[no-untyped-call]
        guards.append(guard)
    if _grad() != grad:
        torch._C._set_grad_enabled(grad)
    if (_details() if _autocast() else ()) != autocast:
        for device in DEVICES:
            torch.set_autocast_enabled(device, False)  # noqa: FBT003
        for device, enabled, dtype in autocast[:-1]:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        if autocast:
            torch.set_autocast_cache_enabled(autocast[-1])


def end(start: Modes, guards: list[Any]) -> None:
    """The run is over: let its guards go, and leave the thread as it was."""
    while guards:
        guards.pop().__exit__(None, None, None)
    if modes() != start:
        _last.clear()  # which changes them once more
        set_modes(start, _last)
