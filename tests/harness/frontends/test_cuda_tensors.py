"""Tensors on cards that are CPU memory: every way to put one there, and that a copy is a copy."""

from __future__ import annotations

import pytest


@pytest.fixture
def passes(script):
    """A program of two ranks in which nothing is wrong."""

    def run(text, **how):
        outcome = script("import numpy\nfrom torch import nn\nx = torch.ones(2, 3)\n" + text, 2, **how)
        assert outcome.findings == (), str(outcome.findings[0])
        return outcome.run.printed

    return run


@pytest.mark.parametrize("made", [
    "torch.zeros(2, device='cuda')", "torch.randn(2, device='cuda:1')", "torch.full((2,), 1.0, device=0)",
    "torch.tensor([1, 2], device='cuda')", "torch.as_tensor([1, 2], device=torch.device('cuda', 1))",
    "torch.empty_like(x, device='cuda')", "x.new_zeros(2, device='cuda')", "x.new_tensor([1], device=1)",
    "torch.normal(0.0, 1.0, (2,), device='cuda')", "torch.fft.fftfreq(4, device='cuda')",
    "torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device='cuda')",
    "torch.empty(2, pin_memory=True)",
    "x.to('cuda')", "x.to(1)", "x.to('cuda:1', torch.float16, True)", "x.to(device='cuda', copy=True)",
    "x.cuda()", "x.cuda(1, non_blocking=True)", "x.pin_memory().cuda()", "x.to(x.cuda())",
    "x.type('torch.cuda.HalfTensor')", "torch.cuda.FloatTensor([1.0])", "nn.Linear(2, 2).cuda().weight",
    "nn.Linear(2, 2).to(1).weight", "nn.Linear(2, 2, device='cuda').weight",
    "nn.LSTM(2, 3).to('cuda').weight_hh_l0",
    "next(nn.Linear(2, 2, device='meta').to_empty(device='cuda').parameters())",
])
def test_what_is_put_on_a_card_lies_in_cpu_memory(passes, made):
    passes(f"made = {made}\nassert made.device.type == 'cpu'")


@pytest.mark.parametrize("line", [
    "there = x.cuda(); there += 1; assert x.sum() == 6",
    "there = x.to(rank); there += 1; assert x.sum() == 6",
    "there = torch.as_tensor(x, device='cuda'); there += 1; assert x.sum() == 6",
    "a = numpy.ones(2); there = torch.as_tensor(a, device='cuda'); there += 1; assert a.sum() == 2",
    "there = x.cuda(); back = there.cpu(); there += 1; assert back.sum() == 6",
    "there = x.cuda(); back = there.to('cpu'); there += 1; assert back.sum() == 6",
    "there = x.cuda(); assert there.cuda() is there and there.to('cuda') is there",
    "there = x.cuda(0); assert there.cuda(1) is not there",
    "there = x.cuda(); assert there.to('cuda', torch.float16).dtype == torch.float16",
    "assert x.cpu() is x and x.to('cpu') is x",
    "w = torch.ones(2, device='cuda', requires_grad=True); (w.to('cuda') * 2).sum().backward();"
    " assert w.grad.tolist() == [2, 2]",
    "w = torch.ones(2, requires_grad=True); (w.cuda() * 2).sum().backward(); assert w.grad.sum() == 4",
])
def test_a_copy_is_a_copy_and_what_is_there_stays(passes, line):
    passes(line)


def test_the_parameters_of_a_module_stay_the_same_objects(passes):
    passes("""
        layer = nn.Linear(2, 2)
        before = list(map(id, layer.parameters()))
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer.cuda()
        assert list(map(id, layer.parameters())) == before
    """.replace("\n        ", "\n"))


def test_random_numbers_of_a_card_follow_its_own_seed(passes):
    passes("""
        state = torch.cuda.get_rng_state()
        one = torch.rand(3, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.equal(one, torch.rand(3, device="cuda"))
        torch.manual_seed(5)
        both = torch.rand(3), torch.rand(3, device="cuda")
        torch.cuda.manual_seed(6)
        torch.manual_seed(5)
        assert torch.equal(both[0], torch.rand(3)) and torch.equal(both[1], torch.rand(3, device="cuda"))
        generator = torch.Generator(device="cuda").manual_seed(2)
        assert isinstance(generator, torch.Generator)
        torch.rand(2, device="cuda", generator=generator)
    """.replace("\n        ", "\n"))


def test_the_default_device_may_be_a_card(passes):
    passes("""
        torch.set_default_device("cuda")
        assert torch.ones(2).device.type == "cpu"
        torch.set_default_device(None)
        with torch.device("cuda:1"):
            nn.Linear(2, 2)
    """.replace("\n        ", "\n"))


def test_what_was_saved_on_a_card_is_loaded(passes, tmp_path):
    passes(f"""
        from torch import serialization
        real = serialization.location_tag
        serialization.location_tag = lambda storage: "cuda:1"
        if rank == 0:
            torch.save({{"w": torch.ones(3)}}, {str(tmp_path / "w.pt")!r})
        serialization.location_tag = real
        dist.barrier()
        for where in (None, "cpu", "cuda", f"cuda:{{rank}}", torch.device("cuda", rank),
                      {{"cuda:1": "cuda:0"}}, lambda storage, place: storage.cuda(rank)):
            loaded = torch.load({str(tmp_path / "w.pt")!r}, map_location=where, weights_only=True)
            assert loaded["w"].tolist() == [1, 1, 1]
    """.replace("\n        ", "\n"))


@pytest.mark.parametrize("cuda", [False, True])
def test_mixed_precision(passes, cuda):
    printed = passes("""
        a = torch.ones(2, 2).cuda()
        with torch.autocast("cuda"):
            print((a @ a).dtype)
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            print((a @ a).dtype)
        with torch.autocast("cuda", enabled=False):
            print((a @ a).dtype)
        print(torch.amp.GradScaler().is_enabled(), torch.amp.GradScaler("cuda").is_enabled())
    """.replace("\n        ", "\n"), cuda=cuda)
    assert printed == ["torch.float16\ntorch.bfloat16\ntorch.float32\nTrue True\n"] * 2


def test_fsdp_of_the_first_version_takes_a_card(passes):
    passes("""
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        torch.cuda.set_device(rank)
        for device in (torch.cuda.current_device(), torch.device("cuda", rank), None):
            layer = nn.Linear(4, 4) if device is not None else nn.Linear(4, 4).cuda()
            FSDP(layer, device_id=device)(torch.ones(2, 4).cuda()).sum().backward()
    """.replace("\n        ", "\n"))


def test_functions_are_still_known_to_jit(script, tmp_path):
    outcome = script("""
        @torch.jit.script
        def shifted(x: torch.Tensor):
            return x + torch.zeros(2)
        assert shifted(torch.ones(2)).tolist() == [1, 1]
    """, 2)
    assert [one.kind for one in outcome.findings] == []


def test_device_ids_of_two_cards_are_torchs_own_error(script):
    outcome = script("""
        from torch.nn.parallel import DistributedDataParallel as DDP
        DDP(torch.nn.Linear(2, 2).cuda(), device_ids=[0, 1])
    """, 2)
    assert "device_ids can only be None or contain a single element" in outcome.findings[0].message
