"""A rank's cards: which one a device argument names, how many there are, and that all of it ends."""

from __future__ import annotations

import pytest
import torch

from harness.frontends.torch_distributed.cuda_stand_in import (
    Cards,
    card_of,
    cards_here,
    for_ranks,
    replaced,
)
from harness.frontends.torch_distributed.script import _stand_ins


@pytest.fixture
def cards(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    return Cards(1, lambda: 0.0, available=False)


@pytest.mark.parametrize(("device", "index"), [
    ("cuda", 2), ("cuda:1", 1), (torch.device("cuda"), 2), (torch.device("cuda", 3), 3), (0, 0),
    ("cpu", None), (torch.device("cpu"), None), ("meta", None), (None, None), (True, None),
])
def test_which_card_a_device_names(cards, device, index):
    cards.current = 2
    assert cards.index(device) == index


def test_what_is_no_device_is_torchs_own_error(cards):
    with pytest.raises(RuntimeError, match="Invalid device string: 'cuda:x'"):
        cards.index("cuda:x")


def test_a_card_for_each_rank_of_the_machine(cards, monkeypatch):
    assert cards.count() == 4
    assert cards.name(3) == "0:3"
    monkeypatch.setenv("GROUP_RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7")
    assert cards.count() == 2
    assert cards.name(1) == "1:7"


def test_what_was_visible_before_the_program_began_says_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    cards = Cards(0, lambda: 0.0, available=True)
    assert (cards.count(), cards.name(1)) == (2, "0:1")


def test_the_card_of_a_collective_is_known_or_it_is_not(cards):
    unmarked, first = torch.ones(2), torch.ones(2)
    assert cards.card_for([unmarked]) == ""
    cards.put(first, 0)
    assert card_of(first.view(1, 2)) == "0:0"
    assert cards.card_for([unmarked]) == "0:0", "the only one that it uses"
    cards.put(torch.ones(2), 1)
    assert cards.card_for([unmarked]) == ""
    assert cards.card_for([unmarked, first]) == "0:0"


def test_with_a_default_device_nothing_is_certain(cards):
    cards.put(torch.ones(2), 0)
    cards.vague = True
    assert cards.card_for([torch.ones(2)]) == ""


def test_outside_of_ranks_the_real_thing_is_called():
    assert cards_here() is None
    assert for_ranks(lambda x: ("real", x), lambda cards, x: ("stand-in", x))(3) == ("real", 3)


def test_names_are_replaced_for_a_while_and_then_as_they_were(script):
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in _stand_ins()]
    with replaced(_stand_ins()):
        assert all(getattr(owner, name) is not None for owner, name, _ in _stand_ins())
        assert torch.ones(2).to("cpu").tolist() == [1.0, 1.0]
        assert torch.randn is not before[0][2]
    outcome = script("torch.ones(2).cuda(); raise ValueError(1)", 2)
    assert outcome.findings[0].kind == "value_error"
    assert [vars(owner).get(name) for owner, name, _ in before] == [value for *_, value in before]
    assert "to" not in vars(torch.Tensor)


def test_a_rank_asks_for_what_it_likes_and_another_is_none_the_wiser(script):
    outcome = script("""
        torch.cuda.set_device(rank)
        dist.barrier()
        assert torch.cuda.current_device() == rank
        seed = torch.cuda.initial_seed()
        assert seed == rank
    """, 3)
    assert outcome.findings == ()


@pytest.mark.parametrize("line", [
    "dist.all_reduce(x)", "functional.all_reduce(x, 'sum', dist.group.WORLD).wait()",
])
def test_two_ranks_that_never_set_their_device_are_on_one_card(script, line):
    outcome = script(f"""
        import torch.distributed._functional_collectives as functional
        dist.init_process_group("nccl")
        x = torch.ones(2, device="cuda")
        {line}
    """, 2, begin="import torch, torch.distributed as dist\n")
    (found, *_) = outcome.findings
    assert found.name == "torch/same_device"
