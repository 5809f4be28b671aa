"""Which variables of the user's frames hold a tensor: what tells two tensors of one shape apart.

Looked at: local variables of the calling frame and of its user-written callers (module level ones are
locals of their frame), and one level into what they hold: string keys of dicts, attributes of `self`,
parameters of modules and their gradients. Not looked at: list elements, whose places say nothing about
which tensor is meant (double buffers swap theirs).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

FRAMES_MAX = 6
LOOKED_AT_MAX = 400
PLAIN = (torch.Tensor, torch.nn.Parameter)


def names_of(
    tensor: torch.Tensor, frame: FrameType | None, is_user: Callable[[CodeType], bool],
    beside: dict[int, torch.Tensor] | None = None,
) -> tuple[str, ...]:
    """The names, innermost frame first: `x`, `grads['w']`, `self.total`, `model.0.weight.grad`.

    frame: where to begin. is_user: whether a code object is the user's; other frames are passed over.
    beside: is given the other plain tensors of the same shape and dtype that are met, by id.
    """
    found: dict[str, None] = {}
    seen = frames = 0
    while frame is not None and frames < FRAMES_MAX:
        if is_user(frame.f_code):
            frames += 1
            for name, value in list(frame.f_locals.items()):
                if not name.isidentifier():
                    continue  # what pytest puts into a function with asserts
                for inside, held in _held(name, value):
                    seen += 1
                    if held is tensor:
                        found[inside] = None
                    elif beside is not None and type(held) in PLAIN and _alike(held, tensor):
                        beside[id(held)] = held
                    if seen > LOOKED_AT_MAX:
                        return tuple(found)
        frame = frame.f_back
    return tuple(found)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.layout == other.layout


def _held(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if isinstance(value, torch.nn.Module):
        for inside, parameter in value.named_parameters():
            yield f"{name}.{inside}", parameter
            yield f"{name}.{inside}.grad", parameter.grad if parameter.is_leaf else None
    elif type(value) is dict and not name.startswith("__"):
        for key, held in itertools.islice(value.items(), LOOKED_AT_MAX):
            if isinstance(key, str):
                yield f"{name}[{key!r}]", held
    elif name == "self" and hasattr(value, "__dict__"):
        for attribute, held in itertools.islice(vars(value).items(), LOOKED_AT_MAX):
            yield f"self.{attribute}", held
