"""Groups that are split from others, and what becomes of those that cannot be."""

from __future__ import annotations

import pytest

NCCL = 'dist.destroy_process_group()\ndist.init_process_group("nccl")\n'
PARTS = NCCL + """
group = dist.split_group(split_ranks=[[1, 0], [2, 3]], group_desc="pair")
x = torch.ones(1) * rank
dist.all_reduce(x, group=group)
print(int(x), dist.get_process_group_ranks(group), group.group_desc)
parent = dist.new_group([3, 1, 2])
if rank:
    for _ in range(2):
        part = dist.split_group(parent, [[0, 2]])
        print(part and dist.get_process_group_ranks(part))
"""


def test_each_part_is_a_group_of_its_own(script):
    outcome = script(PARTS)
    assert outcome.findings == (), [found.message for found in outcome.findings]
    assert outcome.run.printed == [
        "1 [0, 1] pair\n", "1 [0, 1] pair\n[1, 3]\n[1, 3]\n", "5 [2, 3] pair\nNone\nNone\n",
        "5 [2, 3] pair\n[1, 3]\n[1, 3]\n",
    ]


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (NCCL + "dist.split_group(split_ranks=[[0, 1], [2, 3]] if rank != 2 else [[0, 2], [1, 3]])",
         "torch/different_group", "rank 2 splits it into [[0, 2], [1, 3]], rank 0 splits it into [[0"),
        (NCCL + "if rank != 2: dist.split_group(split_ranks=[[0, 1], [2, 3]])",
         "torch/missing_collective", "rank 2 skipped collective 0, split_group() at "),
        (NCCL + "dist.split_group(split_ranks=[[0, 1], [1, 3]])", "exceptions/wrong_collective",
         "[[0, 1], [1, 3]]: parts must not be empty, nor have a rank in common, and be of the parent's "
         "ranks 0..3"),
        (NCCL + "dist.split_group(split_ranks=[[0, 4]])", "exceptions/wrong_collective", "ranks 0..3"),
        (NCCL + "if rank: dist.shrink_group([0])", "exceptions/wrong_collective",
         "make the smaller group with new_group"),
        ("dist.split_group(split_ranks=[[0, 1]])", "exceptions/runtime_error",  # as on real gloo
         "No device associated with the default pg"),
        ("dist.shrink_group([0])", "exceptions/type_error", "does not support shrinking"),
    ],
)
def test_what_does_not_fit_is_told(script, text, name, told):
    first = script(text).findings[0]
    assert first.name == name
    assert told in first.message
    assert "program.py:" in first.message
