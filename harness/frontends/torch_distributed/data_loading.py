"""DataLoader in a simulated run: the rank itself loads, whatever workers it is asked to start.

Processes and threads would not replay. `num_workers`, what goes with it and `pin_memory` are dropped; the
order in which the sampler draws is the same. Not modelled: worker_init_fn and get_worker_info, which a
dataset sees as in a loader without workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from harness.frontends.torch_distributed.cuda_stand_in import Cards, Replaced, for_ranks

_POSITIONS = 5  # dataset, batch_size, shuffle, sampler, batch_sampler: what stands before num_workers
_NAMES = (
    "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn",
    "multiprocessing_context", "generator",
)
_DROPPED = (
    "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
    "prefetch_factor", "persistent_workers", "pin_memory_device",
)
_real: Callable[..., None] = DataLoader.__init__


def _begin(cards: Cards, loader: Any, *args: Any, **kwargs: Any) -> None:
    """DataLoader(...)."""
    given = {**dict(zip(_NAMES, args[_POSITIONS:], strict=False)), **kwargs}
    for name in _DROPPED:
        given.pop(name, None)
    _real(loader, *args[:_POSITIONS], **given)


def loader_names() -> list[Replaced]:
    """What is replaced during a run."""
    return [(DataLoader, "__init__", for_ranks(_real, _begin))]
