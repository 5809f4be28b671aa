"""Which kind a file is, told from its text alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError, UserFileError
from harness.frontends.kinds import KINDS, kind_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("from harness import scenario", "scenario"),
        ("import harness.errors as e", "scenario"),
        ("import torch.distributed as dist\nimport harness", "scenario"),
        ("import torch.distributed as dist", "torch"),
        ("import torch.distributed.device_mesh", "torch"),
        ("from torch import nn, distributed as d", "torch"),
        ("from torch.distributed import *", "torch"),
        ("from torch.nn.parallel import DistributedDataParallel", "torch"),
        ("from torch.nn import parallel", "torch"),
        ("import torch\ntorch.distributed.init_process_group()", "torch"),
        ("import torch as t\nt.nn.parallel.DistributedDataParallel(m)", "torch"),
        ("from torch import nn\nnn.parallel.DistributedDataParallel(m)", "torch"),
        ("def main():\n    import torch.distributed", "torch"),
        ("try:\n    import torch.distributed\nexcept ImportError:\n    pass", "torch"),
        ("import pypto.language as pl", "pld"),
        ("from pypto import x\nimport torch.distributed", "pld"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import harness\n"
            "else:\n    import torch.distributed",
            "torch",
        ),
        ("import typing as t\nif t.TYPE_CHECKING:\n    import harness\nimport pypto", "pld"),
        ("from . import harness\nfrom ..harness import x\nimport torch.distributed", "torch"),
        ("import harnesses, torch.distributed", "torch"),
        ("\ufeffimport pypto", "pld"),
        (r'PATTERN = "\d"' + "\nimport pypto", "pld"),
    ],
)
def test_the_imports_decide(text, kind):
    assert kind_of(text, "file.py") == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import torch\ntorch.nn.Linear(2, 2)",
        "from . import harness",
        "from .torch import distributed",
        "import model\nmodel.harness.run()",
        "harness.run()\ntorch.distributed.barrier()",
        "import torch\ntorch.distributed_things()",
        "import typing\nif typing.TYPE_CHECKING:\n    import torch.distributed",
    ],
)
def test_what_says_nothing_is_asked_for(text):
    with pytest.raises(UserFileError) as caught:
        kind_of(text, "a/train.py")
    assert str(caught.value) == (
        "a/train.py: imports none of harness, torch.distributed and pypto, so what it is cannot be "
        "told; say --as scenario, --as torch or --as pld"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import torch\nif x\n", "a.py:2: expected ':'"),
        ("def f():\nreturn 1\n", "a.py:2: expected an indented block"),
        ("import torch\x00", "null bytes"),
        ("x = " + "(" * 5000, "a.py"),
        ("x = " + "-" * 100_000 + "1", "a.py: nested too deeply"),
    ],
)
def test_what_is_no_python_is_told_with_its_place(text, told):
    with pytest.raises(UserFileError) as caught:
        kind_of(text, "a.py")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_user_s_word_holds_unseen(kind):
    assert kind_of("no python at all", "a.py", kind) == kind


def test_a_word_that_is_no_kind_gets_the_nearest():
    with pytest.raises(UsageError, match=r"--as 'troch': did you mean 'torch'\?"):
        kind_of("", "a.py", "troch")


def test_files_of_this_repository_are_what_they_are():
    for path in sorted((ROOT / "tests/frontends/torch_programs").rglob("*.py")):
        assert kind_of(path.read_text(), str(path)) == "torch", path
    for path in sorted((ROOT / "scenarios/collectives").glob("a*.py")):
        assert kind_of(path.read_text(), str(path)) == "scenario", path
