"""torch.cuda and torch.accelerator for ranks whose cards are CPU memory (cuda_stand_in.py).

The current card, streams and events (whose time is virtual), memory (none is in use), properties, random
numbers, nvtx. Everything that is put on a stream has happened when the call returns. Of what has no
counterpart here the call is an error, NoDevice, with its line.

Not modelled: the order of streams, the host running ahead, graphs, IPC, other accelerators.
"""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Callable, Iterator
from sys import _getframe
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from harness.errors import NoDevice
from harness.fabric.frames import is_library, user_frame_of
from harness.frontends.torch_distributed.cuda_stand_in import Cards, Replaced, cards_here, for_ranks
from harness.record import place

MEMORY = 80 << 30  # bytes that a card says it has
CAPABILITY = (8, 0)
NAME = "CPU memory (simulated)"
_GIVES: dict[str, Any] = {  # what asks, and is told the same by every card
    "can_device_access_peer": True, "get_arch_list": ["sm_80"], "get_device_capability": CAPABILITY,
    "get_device_name": NAME, "get_gencode_flags": "", "init": None, "is_bf16_supported": True,
    "is_current_stream_capturing": False, "is_initialized": True, "is_tf32_supported": True,
    "get_sync_debug_mode": 0, "set_sync_debug_mode": None, "list_gpu_processes": "",
    "device_memory_used": 0, "empty_cache": None, "ipc_collect": None, "max_memory_allocated": 0,
    "max_memory_cached": 0, "max_memory_reserved": 0, "memory_allocated": 0, "memory_cached": 0,
    "memory_reserved": 0, "memory_summary": "", "memory_usage": 0, "mem_get_info": (MEMORY, MEMORY),
    "reset_accumulated_memory_stats": None, "reset_max_memory_allocated": None,
    "reset_max_memory_cached": None, "reset_peak_memory_stats": None, "utilization": 0,
    "set_per_process_memory_fraction": None, "get_per_process_memory_fraction": 1.0,
    "temperature": 0, "power_draw": 0, "clock_rate": 0, "synchronize": None,
}
_CLASSES = (
    "CUDAGraph", "CUDAPluggableAllocator", "ExternalStream", "GreenContext", "MemPool", "graph",
)
_NVTX = {"range_push": 0, "range_pop": 0, "range_start": 0, "range_end": None, "mark": None}
_GIVES_ACCELERATOR = {
    "empty_cache": None, "max_memory_allocated": 0, "max_memory_reserved": 0, "memory_allocated": 0,
    "memory_reserved": 0, "reset_accumulated_memory_stats": None, "reset_peak_memory_stats": None,
    "synchronize": None, "get_memory_info": (MEMORY, MEMORY),
}


def _here() -> Cards:
    cards = cards_here()
    if cards is None:
        raise NoDevice("a stand-in for CUDA outlives its run")
    return cards


class Stream:
    """torch.cuda.Stream: everything on it is done."""

    priority = 0
    cuda_stream = stream_id = 0

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device_index = _here().given(device)
        self.device = torch.device("cuda", self.device_index)

    def wait_stream(self, stream: Any) -> None:
        """It has."""

    wait_event = wait_stream

    def synchronize(self) -> None:
        """Nothing is under way."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event, which takes place at once."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all is done."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is being made."""
        return False

    def __enter__(self) -> Stream:
        cards = _here()
        self._before = cards.stream
        cards.stream = self
        return self

    def __exit__(self, *exc: object) -> None:
        _here().stream = self._before


class Event:
    """torch.cuda.Event. Times are virtual."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        self._timing = enable_timing
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        """Now."""
        self._at = _here().clock()

    def wait(self, stream: Any = None) -> None:
        """It has taken place."""

    def synchronize(self) -> None:
        """It has taken place."""

    def query(self) -> bool:
        """Whether it has taken place."""
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between the two. Raises ValueError as torch does."""
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1000


def _set_device(cards: Cards, device: Any) -> None:
    cards.touched = True
    index = cards.given(device)
    cards.current = cards.current if index < 0 else index


def _exchange(cards: Cards, device: Any) -> int:
    before = cards.current
    _set_device(cards, device)
    return before


class _Device:
    """`with torch.cuda.device(1)`; and of a tensor: the card it was put on, which is not looked up."""

    def __init__(self, device: Any = None) -> None:
        self.idx = _here().given(None if isinstance(device, torch.Tensor) else device)

    def __enter__(self) -> None:
        self.prev_idx = _exchange(_here(), self.idx)

    def __exit__(self, *exc: object) -> None:
        _here().current = self.prev_idx


def _current_stream(cards: Cards, device: Any = None) -> Stream:
    return Stream(device) if cards.stream is None else cards.stream


def _set_stream(cards: Cards, stream: Any) -> None:
    cards.stream = stream


def _stream_context(cards: Cards, stream: Any) -> Any:
    return contextlib.nullcontext() if stream is None else stream


def _properties(cards: Cards, device: Any = None) -> Any:
    return types.SimpleNamespace(
        name=NAME, major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=MEMORY,
        multi_processor_count=108, warp_size=32, gcnArchName="", is_integrated=False,
        is_multi_gpu_board=False, max_threads_per_multi_processor=2048, L2_cache_size=40 << 20,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, uuid="",
    )


def _set_state(cards: Cards, state: torch.Tensor, device: Any = None) -> None:
    cards.generator.set_state(state)


def _accelerator(cards: Cards, check_available: bool = False) -> Any:  # noqa: FBT001, FBT002
    return torch.device("cuda") if cards.available else None


_ASKS: dict[str, Callable[..., Any]] = {
    "is_available": lambda cards: cards.there(),
    "device_count": lambda cards: cards.count(),
    "current_device": lambda cards: cards.current,
    "set_device": _set_device,
    "_exchange_device": _exchange,
    "_maybe_exchange_device": _exchange,
    "_is_in_bad_fork": lambda cards: False,
    "_get_device_index": lambda cards, device=None, *args, **kwargs: cards.given(device),
    "current_stream": _current_stream,
    "default_stream": lambda cards, device=None: Stream(device),
    "set_stream": _set_stream,
    "stream": _stream_context,
    "get_device_properties": _properties,
    "memory_stats": lambda cards, device=None: collections.defaultdict(int),
    "memory_stats_as_nested_dict": lambda cards, device=None: {},
    "memory_snapshot": lambda cards, *args, **kwargs: [],
    "manual_seed": lambda cards, seed: cards.generator.manual_seed(int(seed)) and None,
    "manual_seed_all": lambda cards, seed: cards.generator.manual_seed(int(seed)) and None,
    "seed": lambda cards: cards.generator.manual_seed(cards.rank) and None,
    "seed_all": lambda cards: cards.generator.manual_seed(cards.rank) and None,
    "initial_seed": lambda cards: cards.generator.initial_seed(),
    "get_rng_state": lambda cards, device=None: cards.generator.get_state(),
    "get_rng_state_all": lambda cards: [cards.generator.get_state()] * cards.count(),
    "set_rng_state": _set_state,
    "set_rng_state_all": lambda cards, states: _set_state(cards, list(states)[cards.current]),
}
_ASKS_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "is_available": _ASKS["is_available"],
    "current_accelerator": _accelerator,
    "device_count": lambda cards: cards.count() if cards.available else 0,
    "current_device_index": _ASKS["current_device"],
    "current_device_idx": _ASKS["current_device"],
    "set_device_index": _set_device,
    "set_device_idx": _set_device,
    "current_stream": _current_stream,
    "set_stream": _set_stream,
}


def refuse(cards: Cards, what: str) -> Any:
    """Raises NoDevice: what was called, and where."""
    code, lasti = user_frame_of(_getframe(1))
    raise NoDevice(
        f"rank {cards.rank}: {what} at {place(code, lasti)}: no CUDA here: the cards of a simulated run "
        "are CPU memory, and this has no counterpart there"
    )


def _called_from() -> str:
    """The function of torch that the user's code has called."""
    frame, name = _getframe(2), "a CUDA device"
    while frame is not None and is_library(frame.f_code.co_filename):
        if not frame.f_code.co_filename.startswith(__file__.rpartition("/")[0]):
            name = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return name


def _always(value: Any) -> Callable[..., Any]:
    return lambda cards, *args, **kwargs: value


def _refusing(what: str) -> Callable[..., Any]:
    return lambda cards, *args, **kwargs: refuse(cards, what)


class _Closed(type):
    """Stands for a class of which ranks can have no object; what is one of it still is."""

    real: Any
    what: str
    always: bool  # otherwise only on a card

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        cards = cards_here()
        if cards is not None:
            device = kwargs.get("device", args[0] if args else "cuda")
            if cls.always or cards.index(device) is not None:
                return refuse(cards, cls.what)
        return cls.real(*args, **kwargs)

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, cls.real)

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(one, cls.real)


def _closed(owner: Any, name: str, *, always: bool = True) -> Replaced:
    what = f"{owner.__name__}.{name}"
    return owner, name, _Closed(name, (), {"real": getattr(owner, name), "what": what, "always": always})


def _rest() -> Iterator[str]:
    """Functions of torch.cuda that have no counterpart here."""
    known = {*_ASKS, *_GIVES}
    for name in torch.cuda.__all__:
        if name not in known and isinstance(getattr(torch.cuda, name, None), types.FunctionType):
            yield name


def call_names() -> list[Replaced]:
    """What is replaced during a run."""
    cuda: Any = torch.cuda
    made: list[Replaced] = [
        (cuda, "Stream", Stream), (cuda, "Event", Event), (cuda, "device", _Device),
        (cuda, "device_of", _Device),
        (cuda, "_lazy_init", for_ranks(
            cuda._lazy_init, lambda cards: refuse(cards, _called_from()),
        )),
        *(_closed(cuda, name) for name in _CLASSES if hasattr(cuda, name)),
        *(_closed(torch, name, always=False) for name in ("Stream", "Event")),
    ]
    found: list[tuple[Any, str, Callable[..., Any]]] = [
        *((cuda, name, stand_in) for name, stand_in in _ASKS.items()),
        *((cuda, name, _always(value)) for name, value in _GIVES.items()),
        *((cuda, name, _refusing(f"torch.cuda.{name}")) for name in _rest()),
        *((cuda.nvtx, name, _always(value)) for name, value in _NVTX.items()),
        *((cuda.profiler, name, _always(None)) for name in ("start", "stop")),
        (cuda.nccl, "version", _always((2, 27, 5))),
        (cuda.nccl, "is_available", _ASKS["is_available"]),
        *((torch.accelerator, name, stand_in) for name, stand_in in _ASKS_ACCELERATOR.items()),
        *((torch.accelerator, name, _always(value)) for name, value in _GIVES_ACCELERATOR.items()),
        *((owner, "is_nccl_available", _ASKS["is_available"]) for owner in (dist, c10d)),
    ]
    for owner, name, stand_in in found:
        if hasattr(owner, name):
            made.append((owner, name, for_ranks(getattr(owner, name), stand_in)))
    return made
