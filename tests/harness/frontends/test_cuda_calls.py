"""torch.cuda for ranks without a GPU: what answers, what is refused, and with which line."""

from __future__ import annotations

import pytest


@pytest.fixture
def passes(script):
    def run(text, ranks=2, **how):
        outcome = script(text, ranks, **how)
        assert outcome.findings == (), str(outcome.findings[0])
        return outcome.run.printed

    return run


@pytest.mark.parametrize("line", [
    "torch.cuda.set_device(rank); assert torch.cuda.current_device() == rank",
    "torch.cuda.set_device(f'cuda:{rank}'); assert torch.cuda.current_device() == rank",
    "torch.cuda.set_device(torch.device('cuda', rank)); assert torch.cuda.current_device() == rank",
    "assert torch.cuda.device_count() == size", "torch.cuda.synchronize(rank)",
    "torch.cuda.empty_cache()",
    "assert torch.cuda.memory_allocated() == torch.cuda.max_memory_reserved(0) == 0",
    "free, total = torch.cuda.mem_get_info(); assert 0 < free <= total",
    "assert torch.cuda.memory_stats()['allocated_bytes.all.peak'] == 0",
    "assert torch.cuda.get_device_properties(0).total_memory > 0", "torch.cuda.get_device_name()",
    "assert torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() >= (8, 0)",
    "assert torch.cuda.nccl.version() >= (2, 0)", "torch.cuda.nvtx.mark('here')",
    "with torch.cuda.nvtx.range('step'): pass", "torch.cuda.reset_peak_memory_stats()",
    "torch.accelerator.set_device_index(rank); torch.accelerator.synchronize()",
    "assert len(torch.cuda.get_rng_state_all()) == size", "torch.cuda.manual_seed_all(3)",
    "with torch.random.fork_rng(): torch.rand(2)", "torch.backends.cudnn.benchmark = True",
])
def test_calls_that_answer(passes, line):
    passes(line)


def test_a_card_for_a_while(passes):
    passes("""
        torch.cuda.set_device(1)
        with torch.cuda.device(0):
            assert torch.cuda.current_device() == 0
        with torch.cuda.device("cuda:0"), torch.cuda.device(torch.device("cuda", 1)):
            assert torch.cuda.current_device() == 1
        with torch.cuda.device_of(torch.ones(1).cuda()):
            pass
        assert torch.cuda.current_device() == 1
    """)


def test_what_is_on_a_stream_is_done(passes):
    passes("""
        side = torch.cuda.Stream(priority=-1)
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() is side
            event = side.record_event()
        with torch.cuda.stream(None), side:
            x = torch.ones(2).cuda()
        x.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.current_stream().wait_event(event)
        side.synchronize()
        assert side.query() and event.query()
        assert torch.cuda.current_stream() is not side
    """)


def test_events_take_virtual_time(passes):
    passes("""
        import time
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        time.sleep(3600)
        end.record()
        torch.cuda.synchronize()
        assert 3_600_000 <= start.elapsed_time(end) < 3_601_000
    """)


@pytest.mark.parametrize(("line", "told"), [
    ("one = torch.cuda.Event(); one.record(); one.elapsed_time(one)", "enable_timing=True"),
    ("one = torch.cuda.Event(enable_timing=True); one.elapsed_time(one)", "must be recorded"),
])
def test_events_that_have_no_time(script, line, told):
    (found, *_) = script(line, 2).findings
    assert found.kind == "value_error"
    assert told in found.message


def test_whether_cuda_is_there_is_said_by_the_plan(passes):
    text = """
        print(torch.cuda.is_available(), dist.is_nccl_available(), torch.accelerator.is_available(),
              torch.accelerator.current_accelerator())
    """
    assert passes(text) == ["False False False None\n"] * 2
    assert passes(text, cuda=True) == ["True True True cuda\n"] * 2


@pytest.mark.parametrize(("line", "call"), [
    ("torch.cuda.cudart()", "torch.cuda.cudart"),
    ("torch.cuda.caching_allocator_alloc(3)", "torch.cuda.caching_allocator_alloc"),
    ("torch._C._nn.linear; torch.cuda._lazy_init()", "a CUDA device"),
    ("torch.cuda.CUDAGraph()", "torch.cuda.CUDAGraph"), ("torch.cuda.MemPool()", "torch.cuda.MemPool"),
    ("torch.cuda.graph(None)", "torch.cuda.graph"), ("torch.Stream('cuda:1')", "torch.Stream"),
    ("torch.Stream(device='cuda')", "torch.Stream"), ("torch.Event('cuda')", "torch.Event"),
    ("torch.cuda.ExternalStream(3)", "torch.cuda.ExternalStream"),
])
@pytest.mark.parametrize("cuda", [False, True])
def test_what_has_no_counterpart_is_refused_with_its_line(script, line, call, cuda):
    (found, *_) = script(line, 2, cuda=cuda).findings
    assert found.name == "exceptions/no_device"
    assert call in found.message
    assert "program.py:8" in found.message


def test_classes_that_are_refused_are_still_classes(passes):
    passes("""
        assert not isinstance(1, torch.Stream) and not isinstance(1, torch.cuda.CUDAGraph)
        assert not issubclass(int, torch.Event)
    """)


@pytest.mark.parametrize("line", [
    "assert torch.cuda.is_available()", "assert torch.cuda.is_available(), 'no device'",
    "if not torch.cuda.is_available(): raise RuntimeError('a GPU is needed')",
    "if not torch.cuda.is_available(): raise SystemExit('this needs GPUs')",
])
def test_who_insists_on_cuda_is_told_how_to_have_it(script, passes, line):
    (found, *_) = script(line, 2).findings
    assert found.name == "exceptions/no_device"
    assert "--with-cuda" in found.remedy
    passes(line, cuda=True)


def test_another_failure_after_asking_is_its_own(script):
    (found, *_) = script("""
        torch.cuda.is_available()
        assert rank > 5, "too few"
    """, 2).findings
    assert found.kind == "assertion_error"


def test_binding_a_group_to_a_card(script, begin):
    outcome = script("""
        import os
        r = int(os.environ["LOCAL_RANK"])
        dist.init_process_group("nccl", device_id=torch.device("cuda", r))
        x = torch.ones(1, device=f"cuda:{r}")
        dist.all_reduce(x)
        dist.barrier(device_ids=[r])
        assert x.item() == 2 and dist.get_backend() == "nccl"
    """, 2, begin=begin)
    assert outcome.findings == ()
