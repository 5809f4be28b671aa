# ranks: 2..4
"""Image classification under DDP: a sampler, workers, pinned memory, accuracy over all ranks."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self, device):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device=device)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        return self.sum / self.count


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 5),
    )


def train(loader, model, criterion, optimizer, device):
    losses = AverageMeter()
    model.train()
    for images, target in loader:
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return losses.all_reduce(device)


@torch.no_grad()
def validate(loader, model, device):
    top1 = AverageMeter()
    model.eval()
    for images, target in loader:
        images = images.cuda(device, non_blocking=True)
        target = target.cuda(device, non_blocking=True)
        correct = (model(images).argmax(1) == target).float().mean()
        top1.update(correct.item(), images.size(0))
    return top1.all_reduce(device)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl", init_method="env://")
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(24, 3, 6, 6), torch.randint(0, 5, (24,)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(
        data, batch_size=4, sampler=sampler, num_workers=4, pin_memory=True, persistent_workers=True,
        prefetch_factor=2, drop_last=True,
    )
    model = make_model()
    model.cuda(local_rank)
    model = DDP(model, device_ids=[local_rank], output_device=local_rank)
    criterion = nn.CrossEntropyLoss().cuda(local_rank)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        loss = train(loader, model, criterion, optimizer, device)
        accuracy = validate(loader, model, device)
        scheduler.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
