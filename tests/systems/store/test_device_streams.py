"""What a CUDA device does with tensors that a store or a copy lane uses: addresses, order, lifetimes.

Each order is shown with its twin first (which also loads the kernels), then as the defect. The same
shapes without a device: systems/collectives/streams.py and its mutants, on both fabrics.
"""

import pytest
import torch

from systems.store import UcmConnectorFactory
from systems.store.errors import OK

pytestmark = pytest.mark.gpu

CYCLES = 1_000_000_000  # of the device: about half a second in which a stream is busy
COUNT = (3 << 20) + 256  # elements; a size of which the allocator has no other block


def put(store, ids, tensor):
    assert store.wait(store.dump(ids, 0, tensor)) == OK
    assert store.commit(ids, [True] * len(ids)) == [OK] * len(ids)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32])
def test_a_device_tensor_may_begin_one_element_in(create, ids, dtype, direct):
    count = 70_001
    whole = torch.arange(count + 2, device="cuda").to(dtype)
    inner = whole[1:-1]
    assert inner.data_ptr() % 16
    put(create(io_direct=direct), ids(1), inner)
    target = torch.zeros_like(whole)
    reader = create(io_direct=direct)
    assert reader.wait(reader.load(ids(1), 0, target[1:-1])) == OK
    assert torch.equal(target[1:-1], inner)
    assert not target[0]
    assert not target[-1]


def test_a_copy_sees_what_is_computed_on_another_stream_only_behind_its_event():
    compute, copies = torch.cuda.Stream(), torch.cuda.Stream()

    def copied(*, ordered):
        data = torch.zeros(COUNT, device="cuda")
        landing = torch.zeros(COUNT).pin_memory()
        torch.cuda.synchronize()
        with torch.cuda.stream(compute):
            torch.cuda._sleep(CYCLES)
            data.fill_(7)
            computed = compute.record_event()
        with torch.cuda.stream(copies):
            if ordered:
                copies.wait_event(computed)
            landing.copy_(data, non_blocking=True)
        copies.synchronize()
        seen = landing.clone()
        torch.cuda.synchronize()
        return seen

    assert bool((copied(ordered=True) == 7).all())
    assert not copied(ordered=False).any()


def test_a_dump_is_ordered_behind_the_stream_it_is_called_on_and_no_other(tmp_path, ids):
    compute, copies = torch.cuda.Stream(), torch.cuda.Stream()
    store = UcmConnectorFactory.create_connector("UcmPosixStore", {"storage_path": str(tmp_path)})

    def dumped(block, *, ordered):
        data = torch.zeros(1, COUNT, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(compute):
            torch.cuda._sleep(CYCLES)
            data.fill_(7)
        with torch.cuda.stream(copies):
            if ordered:
                copies.wait_stream(compute)
            put(store, [block], data)
        torch.cuda.synchronize()
        target = torch.empty_like(data)
        assert store.wait(store.load([block], 0, target)) == OK
        return target

    first, second = ids(2)
    assert bool((dumped(first, ordered=True) == 7).all())
    assert not dumped(second, ordered=False).any()
    store.close()


def test_a_buffer_that_another_stream_still_uses_is_kept_only_if_that_is_recorded():
    side = torch.cuda.Stream()

    def used(*, recorded):
        torch.cuda.empty_cache()
        out = torch.zeros(COUNT, device="cuda")
        buffer = torch.ones(COUNT, device="cuda")
        address = buffer.data_ptr()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(CYCLES)
            out.copy_(buffer)
        if recorded:
            buffer.record_stream(side)
        del buffer  # its own stream may have the memory again, unless it knows better
        other = torch.full((COUNT,), 9.0, device="cuda")
        torch.cuda.synchronize()
        return other.data_ptr() == address, out

    reused, out = used(recorded=True)
    assert not reused
    assert bool((out == 1).all())
    reused, out = used(recorded=False)
    assert reused
    assert bool((out == 9).all())
