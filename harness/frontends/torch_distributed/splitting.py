"""split_group and shrink_group in a simulated world.

A split is a call of all ranks of the parent group, which must agree on it; each part then meets and is a
group of its own, in ascending order of its ranks. Source: torch 2.13, where only NCCL (and XCCL) can do
it: of a group of gloo torch's own error is what comes. Refused by name: shrink_group, after which the
ranks have other numbers.

Not modelled: options of NCCL; what becomes of calls in flight in the parent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from harness.errors import WrongCollective
from harness.frontends.torch_distributed.environment import Entry
from harness.frontends.torch_distributed.issuing import Request
from harness.frontends.torch_distributed.place import Place

_SPLITTING = ("nccl", "xccl")


def splitting(place: Place) -> list[Entry]:
    """What a rank sees of both, for environment.py."""
    found: list[Entry] = []
    for name, make in (("split_group", _split), ("shrink_group", _shrink)):
        real = getattr(c10d, name, None)
        if real is not None:
            made = make(place, real)
            found += [(owner, name, made) for owner in (dist, c10d) if hasattr(owner, name)]
    return found


def _splits(group: Any) -> bool:
    return any(name in str(group.name()) for name in _SPLITTING)


def _split(place: Place, real: Callable[..., Any]) -> Callable[..., Any]:
    def split_group(
        parent_pg: Any = None, split_ranks: list[list[int]] | None = None,
        timeout: Any = None, pg_options: Any = None, group_desc: str | None = None,
        backend: Any = None,
    ) -> Any:
        parent: Any = parent_pg or c10d._get_default_group()
        if not split_ranks or not _splits(parent):
            return real(parent_pg, split_ranks, timeout, pg_options, group_desc, backend)
        parts = [sorted(part) for part in split_ranks]
        named = [rank for part in parts for rank in part]
        size = parent.size()
        if not all(parts) or len(set(named)) < len(named) or not set(named) <= set(range(size)):
            _, code, lasti = place.here()
            raise WrongCollective(
                f"{place.called('split_group', code, lasti)}: {split_ranks}: parts must not be empty, "
                f"nor have a rank in common, and be of the parent's ranks 0..{size - 1}"
            )
        parent._issue(Request("split_group", (), (), what=str(split_ranks))).wait()
        mine = next((part for part in parts if parent.rank() in part), None)
        if mine is None:
            return None
        ranks = c10d.get_process_group_ranks(parent)
        return c10d.new_group(
            [ranks[rank] for rank in mine], timeout=timeout, backend=str(backend or parent.name()),
            use_local_synchronization=True, group_desc=group_desc, sort_ranks=False,
        )

    return split_group


def _shrink(place: Place, real: Callable[..., Any]) -> Callable[..., Any]:
    def shrink_group(ranks_to_exclude: list[int], group: Any = None, *args: Any, **named: Any) -> Any:
        if not _splits(group or c10d._get_default_group()):
            return real(ranks_to_exclude, group, *args, **named)
        _, code, lasti = place.here()
        raise WrongCollective(
            f"{place.called('shrink_group', code, lasti)}: a simulated world does not have it; make the "
            "smaller group with new_group"
        )

    return shrink_group
