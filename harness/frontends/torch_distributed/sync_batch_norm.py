"""torch.nn.SyncBatchNorm for ranks whose cards are CPU memory (cuda_stand_in.py).

torch's own layer runs, with its collectives: an all_gather of the statistics forward, an all_reduce of
two sums backward. What it calls in between exists for GPUs only; here it is written out, by the formulas
of batch normalisation (tested against BatchNorm over the whole batch).

Not modelled: layouts (channels_last), the rounding of CUDA's kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules._functions import SyncBatchNorm as Synchronised
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from harness.frontends.torch_distributed.cuda_stand_in import Cards, Replaced, for_ranks

Tensor = torch.Tensor


def _forward(cards: Cards, layer: Any, batch: Tensor) -> Any:
    """SyncBatchNorm.forward, without its check that the batch is on a GPU."""
    group = layer.process_group or dist.group.WORLD if dist.is_initialized() else None
    if not layer.training or group is None or dist.get_world_size(group) == 1:
        return _BatchNorm.forward(layer, batch)
    layer._check_input_dim(batch)
    layer._check_non_zero_input_channels(batch)
    factor = 0.0 if layer.momentum is None else layer.momentum
    if layer.track_running_stats:
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            factor = 1.0 / layer.num_batches_tracked.item()
    means = (layer.running_mean, layer.running_var) if layer.track_running_stats else (None, None)
    apply: Any = Synchronised.apply
    return apply(
        batch, layer.weight, layer.bias, *means, layer.eps, factor, group, dist.get_world_size(group)
    )


def _by_channel(values: Tensor | None, like: Tensor) -> Any:
    """[C] as it stands beside [N, C, ...]."""
    return 1 if values is None else values.view(1, -1, *[1] * (like.dim() - 2))


def _sums(batch: Tensor) -> Tensor:
    return batch.sum([axis for axis in range(batch.dim()) if axis != 1])


def _stats(batch: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """torch.batch_norm_stats: mean and 1 / deviation of each channel, [C]."""
    count = batch.numel() // batch.shape[1]
    mean = _sums(batch) / count
    variance = _sums((batch - _by_channel(mean, batch)) ** 2) / count
    return mean, (variance + eps).rsqrt()


def _gathered(
    batch: Tensor, means: Tensor, invstds: Tensor, running_mean: Tensor | None,
    running_var: Tensor | None, momentum: float, eps: float, counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """torch.batch_norm_gather_stats_with_counts: of all ranks' [W, C] those of the whole batch, [C]."""
    total, share = counts.sum(), counts.view(-1, 1) / counts.sum()
    mean = (share * means).sum(0)
    variance = (share * (invstds**-2 - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * total / (total - 1), momentum)
    return mean, (variance + eps).rsqrt()


def _normalised(
    batch: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Any:
    """torch.batch_norm_elemt."""
    made = (batch - _by_channel(mean, batch)) * _by_channel(invstd, batch) * _by_channel(weight, batch)
    return made if bias is None else made + _by_channel(bias, batch)


def _reduced(
    grad: Tensor, batch: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """torch.batch_norm_backward_reduce: two sums, and the gradients of weight and bias, [C] each."""
    of_grad, with_batch = _sums(grad), _sums(grad * (batch - _by_channel(mean, batch)))
    return of_grad, with_batch, with_batch * invstd, of_grad


def _spread(
    grad: Tensor, batch: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, of_grad: Tensor,
    with_batch: Tensor, counts: Tensor,
) -> Any:
    """torch.batch_norm_backward_elemt: the gradient of the batch, from the sums over all ranks."""
    total = counts.sum()
    centred = (batch - _by_channel(mean, batch)) * _by_channel(invstd**2 * with_batch / total, batch)
    inner = grad - _by_channel(of_grad / total, batch) - centred
    return inner * _by_channel(invstd, batch) * _by_channel(weight, batch)


_KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _stats, "batch_norm_gather_stats_with_counts": _gathered,
    "batch_norm_elemt": _normalised, "batch_norm_backward_reduce": _reduced,
    "batch_norm_backward_elemt": _spread,
}


def _of_rank(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda cards, *args: kernel(*args)


def batch_norm_names() -> list[Replaced]:
    """What is replaced during a run."""
    made: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch.nn.SyncBatchNorm, "forward", _forward),
        (DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda cards, replica, module: None),
        *((torch, name, _of_rank(kernel)) for name, kernel in _KERNELS.items()),
    ]
    return [
        (owner, name, for_ranks(getattr(owner, name), stand_in)) for owner, name, stand_in in made
    ]
