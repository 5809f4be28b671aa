"""SyncBatchNorm on the CPU: as BatchNorm over the whole batch, forward, backward, running statistics."""

from __future__ import annotations

import pytest

COMPARED = """
from torch import nn
torch.manual_seed(0)
shares = {shares}
whole = torch.randn(sum(shares), 3, {tail} dtype=torch.float64)
weights = torch.randn_like(whole)
plain = nn.BatchNorm{dims}d(3, **{options}).double()
layer = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm{dims}d(3, **{options})).double().cuda()
begin = sum(shares[:rank])
mine = slice(begin, begin + shares[rank])
for _ in range(2):
    a, b = whole.clone().requires_grad_(), whole[mine].clone().requires_grad_()
    expected, found = plain(a), layer(b.cuda())
    (expected * weights).sum().backward()
    (found * weights[mine]).sum().backward()
    torch.testing.assert_close(found, expected[mine])
    torch.testing.assert_close(b.grad, a.grad[mine])
for p, q in zip(plain.parameters(), layer.parameters()):
    dist.all_reduce(q.grad)
    torch.testing.assert_close(q.grad, p.grad)
for name, value in plain.named_buffers():
    torch.testing.assert_close(dict(layer.named_buffers())[name], value)
plain.eval(), layer.eval()
torch.testing.assert_close(layer(whole), plain(whole))
"""


@pytest.mark.parametrize("shares", [[4, 4], [2, 5, 1]])
@pytest.mark.parametrize(("dims", "tail"), [(1, ""), (2, "2, 3,")])
@pytest.mark.parametrize("options", [
    "{}", "{'momentum': None}", "{'affine': False}", "{'track_running_stats': False}",
])
def test_as_over_the_whole_batch(script, shares, dims, tail, options):
    text = COMPARED.format(shares=shares, dims=dims, tail=tail, options=options)
    outcome = script(text, len(shares))
    assert outcome.findings == (), str(outcome.findings[0])


def test_a_rank_that_leaves_its_batch_out_is_found(script):
    outcome = script("""
        layer = torch.nn.SyncBatchNorm(3).cuda()
        if rank != 1:
            layer(torch.ones(2, 3).cuda())
    """, 3)
    assert outcome.findings[0].name == "torch/missing_collective"
