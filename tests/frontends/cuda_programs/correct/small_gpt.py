# ranks: 2..4
"""A small language model: gradient accumulation with no_sync, autocast in bfloat16, clipping."""

import contextlib
import math
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, BLOCK, WIDTH = 17, 8, 12
gradient_accumulation_steps = 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (part.view(b, t, 3, c // 3).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.tokens(idx) + self.places(pos)
        logits = self.head(x + self.attention(self.norm(x)))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


ddp_local_rank = int(os.environ["LOCAL_RANK"])
ddp_rank = int(os.environ["RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
init_process_group(backend="nccl")
device = f"cuda:{ddp_local_rank}"
torch.cuda.set_device(device)
torch.manual_seed(1337 + ddp_rank)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ctx = torch.amp.autocast(device_type=device_type, dtype=torch.bfloat16)
text = torch.randint(0, VOCABULARY, (200,))


def get_batch():
    ix = torch.randint(len(text) - BLOCK, (3,))
    x = torch.stack([text[i : i + BLOCK] for i in ix])
    y = torch.stack([text[i + 1 : i + 1 + BLOCK] for i in ix])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


model = Model()
model.to(device)
decay = [p for p in model.parameters() if p.dim() >= 2]
rest = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2,
    fused=device_type == "cuda",
)
model = DDP(model, device_ids=[ddp_local_rank])
for step in range(2):
    for group in optimizer.param_groups:
        group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / 2))
    for micro_step in range(gradient_accumulation_steps):
        last = micro_step == gradient_accumulation_steps - 1
        with contextlib.nullcontext() if last else model.no_sync():
            X, Y = get_batch()
            with ctx:
                loss = model(X, Y) / gradient_accumulation_steps
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
total = sum(p.detach().double().sum() for p in model.parameters())
print(f"rank {ddp_rank}: {total.item():.5f}")
destroy_process_group()
