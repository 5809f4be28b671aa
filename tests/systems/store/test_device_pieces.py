"""Tensors of a device: the order of events and copies by a stand-in, and round trips where CUDA is."""

import pytest
import torch

from systems.store import UcmConnectorFactory
from systems.store.piece import Piece


class Stream:
    def __init__(self, told):
        self.told = told

    def synchronize(self):
        self.told.append("stream")


class Event:
    """What the caller had queued; it writes `value` into the tensor when it is waited for."""

    def __init__(self, told, tensor, value):
        self.told, self.tensor, self.value = told, tensor, value

    def synchronize(self):
        self.told.append("event")
        self.tensor.fill_(self.value)


@pytest.fixture
def told(monkeypatch):
    found = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(found))
    return found


@pytest.fixture
def device(told):
    """A piece of a tensor that counts as a device's, with work queued on it."""
    tensor = torch.zeros(5000, dtype=torch.uint8)
    piece = Piece(tensor)
    piece._after = Event(told, tensor, 7)
    return tensor, piece


def test_a_dump_sees_what_was_queued_before_it(device, told):
    _, piece = device
    assert bytes(piece.outgoing()) == bytes([7]) * 5000
    assert told == ["event"]
    assert piece.address % 4096 == 0


def test_a_load_lands_after_the_queued_work_and_is_there(device, told):
    tensor, piece = device
    piece.incoming()[:] = bytes([9]) * 5000
    assert piece.address % 4096 == 0
    assert not tensor.any()
    piece.landed()
    assert told == ["event", "stream"]
    assert bool((tensor == 9).all())
    piece.landed()  # nothing more to land
    assert told == ["event", "stream"]


def test_through_a_pool_buffer_and_back(device, told):
    tensor, piece = device
    buffer = torch.zeros(8192, dtype=torch.uint8)
    node = Piece.of(buffer, buffer.data_ptr(), 0, 5000, "uint8")
    piece.copied_to(node)
    assert bool((buffer[:5000] == 7).all())
    assert not buffer[5000:].any()
    buffer.fill_(3)
    piece.fill(node)
    assert bool((tensor == 3).all())
    assert told == ["event", "event", "stream"]


def test_copies_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="a copy of 3 bytes into 2"):
        Piece(torch.zeros(2, dtype=torch.uint8)).fill(Piece(torch.zeros(3, dtype=torch.uint8)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("direct", [False, True])
def test_a_device_tensor_from_the_pool_and_from_the_disk(tmp_path, ids, direct):
    config = {"storage_path": str(tmp_path), "io_direct": direct}
    store = UcmConnectorFactory.create_connector("UcmPipelineStore", config)
    source = torch.arange(3 * 70_000, device="cuda", dtype=torch.int32).view(3, 70_000)
    assert store.wait(store.dump(ids(3), 0, source)) == 0
    assert store.commit(ids(3)) == [0, 0, 0]
    for reader in (store, UcmConnectorFactory.create_connector("UcmPipelineStore", config)):
        target = torch.zeros_like(source)
        assert reader.wait(reader.load(ids(3), 0, target)) == 0
        assert torch.equal(source, target)
        reader.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_a_load_into_a_device_tensor_is_there_for_the_work_queued_after(tmp_path, ids):
    store = UcmConnectorFactory.create_connector("UcmPosixStore", {"storage_path": str(tmp_path)})
    source = torch.full((1, 1 << 20), 5, dtype=torch.int32)
    assert store.wait(store.dump(ids(1), 0, source)) == 0
    store.commit(ids(1))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        target = torch.zeros(1, 1 << 20, dtype=torch.int32, device="cuda")
        for _ in range(50):
            target += 1
        assert store.wait(store.load(ids(1), 0, target)) == 0
        target *= 2
    stream.synchronize()
    assert bool((target == 10).all())
    store.close()
