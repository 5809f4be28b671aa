"""DataLoader with workers: the rank itself loads, in the same order."""

from __future__ import annotations

import pytest

DATA = """
from torch.utils.data import DataLoader, TensorDataset, get_worker_info
data = TensorDataset(torch.arange(8))
torch.manual_seed(3)
plain = [batch.tolist() for (batch,) in DataLoader(data, 2, shuffle=True)]
torch.manual_seed(3)
"""


@pytest.mark.parametrize("how", [
    "num_workers=4", "num_workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=4",
    "num_workers=2, timeout=30, worker_init_fn=print, multiprocessing_context='spawn'",
    "pin_memory=True, pin_memory_device='cuda'",
])
def test_workers_change_nothing(script, how):
    outcome = script(DATA + f"""
loader = DataLoader(data, 2, shuffle=True, {how})
for _ in range(2):
    batches = [batch.tolist() for (batch,) in loader]
    if _ == 0:
        assert batches == plain
assert get_worker_info() is None
""", 2)
    assert outcome.findings == (), str(outcome.findings[0])


def test_arguments_by_position(script):
    outcome = script(DATA + """
loader = DataLoader(data, 2, False, None, None, 3, None, True, True)
assert [batch.tolist() for (batch,) in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
assert loader.drop_last and not loader.num_workers
""", 2)
    assert outcome.findings == (), str(outcome.findings[0])
