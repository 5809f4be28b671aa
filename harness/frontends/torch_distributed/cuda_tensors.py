"""What in torch takes a device, for ranks whose cards are CPU memory (cuda_stand_in.py).

Factory functions, Tensor.to, .cuda, .cpu and .pin_memory, modules, torch.load, the default device,
autocast and GradScaler, device meshes, DDP's device_ids, FSDP's device_id. A copy between host and card
is a copy, as it is with a GPU: changing one side leaves the other alone. Random numbers that are made on
a card come from a generator of its own, which torch.manual_seed and torch.cuda.manual_seed set; those of
an operation in place (dropout, nn.init) come from the CPU's.

Not modelled: `tensor.device` and `tensor.is_cuda` (they say cpu), the error where tensors of two devices
meet, which operations run in half precision under autocast (those of the CPU's list), legacy storages.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.amp import autocast_mode, grad_scaler
from torch.autograd import profiler
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.jit import _builtins
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _device

from harness.frontends.torch_distributed.cuda_stand_in import (
    CPU,
    Cards,
    Replaced,
    cards_here,
    for_ranks,
)

Method = Callable[..., Any]
_parallel: Any = sys.modules[torch.nn.DataParallel.__module__]  # whose name a function has, too
_FACTORIES = (
    "arange", "asarray", "as_tensor", "bartlett_window", "blackman_window", "empty", "empty_like",
    "empty_permuted", "empty_strided", "eye", "full", "full_like", "hamming_window", "hann_window",
    "kaiser_window", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "randperm", "range", "scalar_tensor",
    "sparse_coo_tensor", "sparse_csr_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
    "zeros_like",
)
_NEW = ("new_tensor", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
_DRAWING = frozenset(("normal", "rand", "randint", "randn", "randperm"))
_ALIASING = frozenset(("as_tensor", "asarray"))
_TO = ("device", "dtype", "non_blocking", "copy")
_LEGACY = ("Bool", "Byte", "Char", "Double", "Float", "Half", "BFloat16", "Int", "Long", "Short")
_to: Method = torch.Tensor.to


def _factory(owner: Any, name: str) -> Replaced:
    real = getattr(owner, name)

    @functools.wraps(real)
    def make(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is None and not kwargs.get("pin_memory"):
            return real(*args, **kwargs)
        cards = cards_here()
        if cards is None:
            return real(*args, **kwargs)
        kwargs.pop("pin_memory", None)
        index = cards.index(kwargs.get("device"))
        if index is None:
            return real(*args, **kwargs)
        kwargs["device"] = CPU
        if name in _DRAWING and kwargs.get("generator") is None:
            kwargs["generator"] = cards.generator
        if name in _ALIASING and isinstance(args[0] if args else None, torch.Tensor):
            given = _moved(cards, args[0], index, kwargs.pop("dtype", None))
            return real(given, *args[1:], **kwargs)
        made = real(*args, **kwargs)
        return cards.put(made.clone() if name in _ALIASING else made, index)

    return owner, name, make


def _moved(
    cards: Cards, tensor: Any, index: int, dtype: torch.dtype | None = None, **how: Any
) -> Any:
    """The tensor on a card: itself if it is there."""
    _shard_on_cpu()
    how["copy"] = bool(how.get("copy")) or not cards.has(tensor, index)
    return cards.put(_to(tensor, device=CPU, dtype=dtype, **how), index)


def _tensor_to(cards: Cards, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Tensor.to(device, dtype, non_blocking, copy); its other forms name no device."""
    first = args[0] if args else kwargs.get("device")
    if first is None or isinstance(first, torch.dtype | torch.Tensor):
        return _to(tensor, *args, **kwargs)
    how = {**dict(zip(_TO, args, strict=False)), **kwargs}
    index = cards.index(first)
    del how["device"]
    if index is not None:
        return _moved(cards, tensor, index, **how)
    if cards.touched and torch.device(first).type == "cpu":
        how["copy"] = True
    return _to(tensor, device=first, **how)


def _tensor_cuda(
    cards: Cards, tensor: Any, device: Any = None, non_blocking: bool = False,  # noqa: FBT001, FBT002
    memory_format: torch.memory_format = torch.preserve_format,
) -> Any:
    """Tensor.cuda."""
    index = cards.given(device)
    return _moved(cards, tensor, index, non_blocking=non_blocking, memory_format=memory_format)


def _tensor_cpu(
    cards: Cards, tensor: Any, memory_format: torch.memory_format = torch.preserve_format
) -> Any:
    """Tensor.cpu: a copy, wherever the tensor may have been."""
    return _to(tensor, device=CPU, copy=cards.touched, memory_format=memory_format)


def _tensor_type(cards: Cards, tensor: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Tensor.type, which may name a card by a legacy type."""
    real: Method = _REAL["type"]
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        made = real(tensor, dtype.replace(".cuda", "", 1), *args, **kwargs)
        return cards.put(made.clone() if made is tensor else made, cards.current)
    return real(tensor, dtype, *args, **kwargs)


_REAL: dict[str, Method] = {
    name: getattr(torch.Tensor, name)
    for name in ("to", "cuda", "cpu", "type", "pin_memory", "record_stream")
}
_METHODS: dict[str, Method] = {
    "to": _tensor_to, "cuda": _tensor_cuda, "cpu": _tensor_cpu, "type": _tensor_type,
    "pin_memory": lambda cards, tensor, device=None: tensor.clone(),
    "record_stream": lambda cards, tensor, stream: None,
}


def _module_to(cards: Cards, module: Any, *args: Any, **kwargs: Any) -> Any:
    """Module.to, whose device may be the bare number of a card."""
    if args and isinstance(args[0], int):
        args = torch.device("cuda", args[0]), *args[1:]
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = torch.device("cuda", kwargs["device"])
    return _module_real(module, *args, **kwargs)


_module_real: Method = torch.nn.Module.to
_restore_real: Method = torch.serialization.default_restore_location


def _restored(cards: Cards, storage: Any, location: Any) -> Any:
    """Where torch.load puts a storage."""
    index = cards.index(str(location))
    if index is None:
        return _restore_real(storage, location)
    return _storage_cuda(cards, storage, index)


def _storage_cuda(
    cards: Cards, storage: Any, device: Any = None, non_blocking: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """UntypedStorage.cuda, in the map_location of torch.load: it was read for this."""
    index = cards.given(device)
    untyped = getattr(storage, "_untyped_storage", storage)
    untyped._card = cards.name(index)
    cards.used.add(untyped._card)
    cards.touched = True
    return storage


def _default_device(cards: Cards, context: Any, device: Any) -> None:
    """`with torch.device("cuda")` and torch.set_default_device."""
    if cards.index(device) is not None:
        cards.touched = cards.vague = True
        device = CPU
    _context_real(context, device)


_context_real: Method = _device.DeviceContext.__init__


def _autocast(
    cards: Cards, cast: Any, device_type: str, dtype: torch.dtype | None = None,
    enabled: bool = True, cache_enabled: bool | None = None,  # noqa: FBT001, FBT002
) -> None:
    """torch.autocast: half precision where nothing else is asked for, as on a GPU."""
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or torch.float16
    _autocast_real(cast, device_type, dtype, enabled, cache_enabled)


_autocast_real: Method = autocast_mode.autocast.__init__


def _for_type(owner: Any) -> Replaced:
    """A class whose first argument is the type of a device."""
    real: Method = owner.__init__
    default = {"device": "cuda"} if owner is grad_scaler.GradScaler else {}

    def begin(cards: Cards, made: Any, *args: Any, **kwargs: Any) -> None:
        given = list(args)
        if given and given[0] == "cuda":
            given[0] = "cpu"
        elif not given:
            named = {**default, **kwargs}
            kwargs = {
                name: "cpu" if name in ("device", "device_type") and value == "cuda" else value
                for name, value in named.items()
            }
        real(made, *given, **kwargs)

    return owner, "__init__", for_ranks(real, begin)


def _replicated(
    cards: Cards, replica: Any, module: Any, device_ids: Any = None, output_device: Any = None,
    *args: Any, **kwargs: Any,
) -> None:
    """DDP of a module on one card: of a module on the CPU."""
    if device_ids is None or len(device_ids) == 1:
        device_ids = output_device = None
    _ddp_real(replica, module, device_ids, output_device, *args, **kwargs)


_ddp_real: Method = DistributedDataParallel.__init__


def _profiled(cards: Cards, profile: Any, *args: Any, **kwargs: Any) -> None:
    """The profiler, of the CPU alone."""
    kwargs.update(use_device=None)
    _profile_real(profile, *args, **kwargs)


_profile_real: Method = profiler.profile.__init__


def _grouped(cards: Cards, *args: Any, **kwargs: Any) -> Any:
    """init_process_group, whose device_id binds the group to a card."""
    if cards.index(kwargs.get("device_id")) is not None:
        del kwargs["device_id"]
    _shard_on_cpu()
    return _init_real(*args, **kwargs)


def _shard_on_cpu() -> None:
    """FSDP's device_id, once a program has imported FSDP: that takes too long to do for all of them, so
    this name is replaced for good (it acts for ranks only)."""
    module = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    sharded: Any = getattr(module, "FullyShardedDataParallel", None)
    if sharded is None or hasattr(sharded, "_stood_in"):
        return
    real: Method = sharded.__init__

    def begin(cards: Cards, wrapper: Any, *args: Any, **kwargs: Any) -> None:
        wanted = cards.index(kwargs.get("device_id"))
        if wanted is not None or (cards.touched and kwargs.get("device_id") is None):
            kwargs["device_id"] = CPU
        real(wrapper, *args, **kwargs)

    sharded.__init__, sharded._stood_in = for_ranks(real, begin), True


_init_real: Method = c10d.init_process_group


_kind_of_type: Any = type(torch.Generator)


class _KindOfGenerator(_kind_of_type):  # type: ignore[misc]
    """What is a torch.Generator is one of these."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, _generator_real)


_generator_real: Any = torch.Generator


class _Generator(_generator_real, metaclass=_KindOfGenerator):  # type: ignore[misc]
    """torch.Generator, on the CPU where a rank wants one on a card."""

    def __new__(cls, device: Any = "cpu") -> Any:
        cards = cards_here()
        wanted = cards is not None and cards.index(device) is not None
        return _generator_real(device=CPU if wanted else device)


def _known_to_jit(made: list[Replaced]) -> None:
    """torch.jit.script knows functions by their identity."""
    table: Any = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    for owner, name, stand_in in made:
        if id(getattr(owner, name)) in table:
            table[id(stand_in)] = table[id(getattr(owner, name))]


def _on_no_card(cards: Cards) -> None:
    """What nn.DataParallel runs on: a module on the CPU stays as it is."""


def tensor_names() -> list[Replaced]:
    """What is replaced during a run."""
    _device._device_constructors()  # which torch asks for once, and keeps
    made = [_factory(torch, name) for name in _FACTORIES]
    made += [_factory(torch.fft, name) for name in ("fftfreq", "rfftfreq")]
    _known_to_jit(made)
    made += [_factory(torch.Tensor, name) for name in _NEW]
    for name, stand_in in _METHODS.items():
        made.append((torch.Tensor, name, for_ranks(_REAL[name], stand_in)))
    storage: Any = torch.UntypedStorage
    for owner, name, real, stand_in in (
        (torch.nn.Module, "to", _module_real, _module_to),
        (torch.serialization, "default_restore_location", _restore_real, _restored),
        (storage, "cuda", storage.cuda, _storage_cuda),
        (_device.DeviceContext, "__init__", _context_real, _default_device),
        (autocast_mode.autocast, "__init__", _autocast_real, _autocast),
        (DistributedDataParallel, "__init__", _ddp_real, _replicated),
        (profiler.profile, "__init__", _profile_real, _profiled),
        (_parallel, "_get_available_device_type", _parallel._get_available_device_type, _on_no_card),
        (dist, "init_process_group", _init_real, _grouped),
        (c10d, "init_process_group", _init_real, _grouped),
    ):
        made.append((owner, name, for_ranks(real, stand_in)))
    made += [_for_type(grad_scaler.GradScaler), _for_type(device_mesh.DeviceMesh)]
    made.append((torch, "Generator", _Generator))
    made += [
        (torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor")) for kind in _LEGACY
    ]
    return made
