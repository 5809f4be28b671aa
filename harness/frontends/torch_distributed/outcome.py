"""What each rank of a torch.distributed program came to: what it printed and what it returned, as text.

Two runs of one program, with the same parameters, must come to the same whatever the schedule; where
they do not, that is a finding (harness/checkers/torch_program.py). Addresses in what is printed are
taken out, and what other threads than the main one print, whose order is anyone's, does not count. Not
modelled: files that a rank writes; results of types other than numbers, texts, tensors and what holds
them (of which only the type counts).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import torch

from harness.record import Run

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


def came_to(run: Run) -> list[str]:
    """By rank."""
    printed = run.by_main or run.printed or [""] * run.ranks
    return [
        _ADDRESS.sub("0x…", printed[rank]) + ("" if plain(result) == "[None]" else f"\n{plain(result)}")
        for rank, result in enumerate(run.results)
    ]


def plain(value: Any) -> str:
    """A text that two values share only if they are alike, tensors bit for bit."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().cpu().contiguous().reshape(-1)
        data = dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""
        digest = hashlib.sha256(data).hexdigest()[:16]
        return f"tensor({list(value.shape)}, {str(value.dtype).removeprefix('torch.')}, {digest})"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{plain(key)}: {plain(held)}' for key, held in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain, value))}]"
    return type(value).__qualname__
