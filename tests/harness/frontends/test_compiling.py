"""torch.compile in a rank: the same objects as torch makes, run as they are written."""

from __future__ import annotations

import torch

COMPILED_STEP = """
from torch.nn.parallel import DistributedDataParallel
model = torch.nn.Linear(2, 1)
with torch.no_grad():
    [p.fill_(1.0) for p in model.parameters()]
compiled = torch.compile(DistributedDataParallel(model), mode="reduce-overhead")
compiled(torch.full((1, 2), float(rank))).sum().backward()
assert type(compiled).__name__ == "OptimizedModule" and compiled._orig_mod.module is model
print(model.weight.grad.tolist())
"""

FUNCTIONAL = """
import torch.distributed._functional_collectives as funcol
seen = []

@torch.compile(fullgraph=True)
def total(x):
    seen.append((type(x), torch.compiler.is_compiling()))
    return funcol.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

class Tower(torch.nn.Module):
    def forward(self, x):
        dist.all_reduce(x)
        return x

tower = Tower()
tower.compile()
for _ in range(2):
    print(total(torch.full((1,), float(rank))).item(), tower(torch.ones(1)).item())
assert seen == [(torch.Tensor, False)] * 2, seen
"""


def printed(outcome):
    assert outcome.findings == (), [found.message for found in outcome.findings]
    return outcome.run.printed


def test_a_compiled_ddp_step(script):
    assert printed(script(COMPILED_STEP, 3)) == ["[[1.0, 1.0]]\n"] * 3


def test_compiled_functions_with_collectives_run_as_they_are_written(script):
    assert printed(script(FUNCTIONAL, 3)) == ["7.0 3.0\n7.0 3.0\n"] * 3


def test_the_processs_own_compiler_is_as_before(script):
    before = torch.compile, torch._dynamo.eval_frame._stance, torch._dynamo.trace_rules.clear_lru_cache
    printed(script(FUNCTIONAL, 2))
    assert before == (
        torch.compile, torch._dynamo.eval_frame._stance, torch._dynamo.trace_rules.clear_lru_cache
    )
    assert before[1].stance == "default"


def test_a_stance_that_the_program_sets_for_a_while(script):
    text = """
@torch.compile
def twice(x):
    return x * 2

twice(torch.ones(1))
with torch.compiler.set_stance("fail_on_recompile"):
    dist.barrier()
    assert twice(torch.ones(3)).sum() == 6
"""
    printed(script(text, 2))
