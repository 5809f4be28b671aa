"""The CUDA devices of a simulated rank: cards that are CPU memory, and which of them it uses.

A script that is written for GPUs asks for "cuda", and names cards; its ranks run on the CPU all the
same, on a machine with GPUs as on one without: the run is the same everywhere. For that torch's Python
names that take a device (cuda_tensors.py) or are CUDA's own (cuda_calls.py) are replaced while a run of
such programs lasts; what stands in their place acts for ranks only, while their code runs, and is
torch's own for everybody else.

What the program can see of a card: which one is the current one, how many there are (one a rank of the
machine), that a copy to or from it is a copy. Not modelled: where a tensor that an operation has made
lies (`tensor.device` says cpu, and tensors of two cards may meet), the order of streams, the host
running ahead of the device, how much memory there is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from harness.frontends.torch_distributed.environment import in_force

VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU = torch.device("cpu")
_ABSENT = object()

Replaced = tuple[Any, str, Any]  # owner, attribute, what stands there during a run


class Cards:
    """One rank's.

    available: what torch.cuda.is_available() says. denied: whether it has said no. clock: virtual
    seconds. touched: whether the program has asked for a card. used: where it has put tensors. vague:
    whether it has made some where nobody looked (a default device).
    """

    def __init__(self, rank: int, clock: Callable[[], float], *, available: bool) -> None:
        self.rank = rank
        self.available = available
        self.denied = False
        self.clock = clock
        self.current = 0
        self.touched = False
        self.vague = False
        self.used: set[str] = set()
        self.generator = torch.Generator().manual_seed(rank)
        self.stream: Any = None
        self._visible = os.environ.get(VISIBLE)

    def there(self) -> bool:
        """Whether CUDA is there, as the program is told."""
        self.denied = self.denied or not self.available
        return self.available

    def index(self, device: Any) -> int | None:
        """Which card a device argument names ("cuda", "cuda:1", 1, torch.device("cuda", 1)), or None."""
        if isinstance(device, str):
            device = torch.device(device) if device.startswith("cuda") else None
        if isinstance(device, torch.device):
            if device.type != "cuda":
                return None
            device = self.current if device.index is None else device.index
        return device if isinstance(device, int) and not isinstance(device, bool) else None

    def given(self, device: Any) -> int:
        """The same for CUDA's own calls, where None is the current card."""
        index = self.index(device)
        return self.current if index is None else index

    def visible(self) -> list[str]:
        """The cards that the program has left visible to itself; empty: all."""
        now = os.environ.get(VISIBLE)
        return now.split(",") if now and now != self._visible else []

    def count(self) -> int:
        """How many cards there are: one a rank of this machine."""
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        return len(self.visible()) or (int(local) if local.isdigit() else 1)

    def name(self, index: int) -> str:
        """The card as all ranks call it: machine and card."""
        visible = self.visible()
        card = visible[index].strip() if index < len(visible) else str(index)
        return f"{os.environ.get('GROUP_RANK', '0')}:{card}"

    def put(self, tensor: Any, index: int) -> Any:
        """The tensor, which is now on a card."""
        self.touched = True
        name = self.name(index)
        self.used.add(name)
        with contextlib.suppress(NotImplementedError, RuntimeError):  # sparse tensors have none
            tensor.untyped_storage()._card = name
        return tensor

    def has(self, tensor: Any, index: int) -> bool:
        """Whether the tensor is known to be on that card."""
        return card_of(tensor) == self.name(index)

    def card_for(self, tensors: Iterable[torch.Tensor]) -> str:
        """The card on which a collective takes place; "": it cannot be said for certain."""
        for tensor in tensors:
            if known := card_of(tensor):
                return known
        return next(iter(self.used)) if len(self.used) == 1 and not self.vague else ""


def card_of(tensor: Any) -> str:
    """The card that a tensor was put on; "" for others."""
    try:
        return getattr(tensor.untyped_storage(), "_card", "")
    except (NotImplementedError, RuntimeError):
        return ""


def cards_here() -> Cards | None:
    """The cards of the rank whose code is running; None outside."""
    rank = in_force()
    return None if rank is None else rank.cards


def for_ranks(real: Callable[..., Any], stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """`stand_in(cards, ...)` where a rank's code runs, `real(...)` elsewhere."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        cards = cards_here()
        return real(*args, **kwargs) if cards is None else stand_in(cards, *args, **kwargs)

    chosen.__name__ = chosen.__qualname__ = getattr(real, "__name__", "stand_in")
    chosen.__doc__ = getattr(real, "__doc__", None)
    return chosen


@contextlib.contextmanager
def replaced(names: Iterable[Replaced]) -> Iterator[None]:
    """While it lasts the attributes are what the list says."""
    held = []
    for owner, name, value in names:
        held.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(held):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
