"""`pl`'s operations on memory, each in a kernel of one device.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest
import torch

from harness.frontends.pypto.modules import modules

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
ROWS, COLS = 4, 6


def program(step):
    """A host function whose kernel is `step(x, y, data)`."""

    @pl.jit.incore
    def kernel(
        x: pl.Tensor[[ROWS, COLS], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[ROWS, COLS], pl.FP32]],
    ):
        step(x, y, data)

    @pl.jit.host
    def host(
        x: pl.Tensor[[1, ROWS, COLS], pl.FP32], y: pl.Out[pl.Tensor[[1, ROWS, COLS], pl.FP32]]
    ):
        buffer = pld.alloc_window_buffer([ROWS, COLS], dtype=pl.FP32)
        for r in pl.range(pld.world_size()):
            kernel(x[r], y[r], pld.window(buffer, [ROWS, COLS], dtype=pl.FP32), device=r)

    return host


X = torch.arange(ROWS * COLS, dtype=torch.float32).reshape(ROWS, COLS) + 1


@pytest.fixture
def findings(called):
    """What is found of `step`; expected: what it leaves in y, which is zeros at first."""

    def run(step, expected=None):
        told = {} if expected is None else {"y": expected[None]}
        return called(program(step), X[None], torch.zeros(1, ROWS, COLS), ranks=1, **told).names()

    return run


def whole():
    return [0, 0], [ROWS, COLS]


def clipped(x, y, data):
    tile = pl.load(x, [2, 0], [ROWS, COLS], valid_shape=[2, 5])
    pl.store(pl.add(tile, 1), [1, 1], y)


def clamped(x, y, data):
    pl.store(pl.load(x, offsets=[3, 4], shapes=[2, 4], clamp=True), [0, 0], output_tensor=y)


def shaped(x, y, data):
    pl.store(pl.load(x, [0, 0], [1, 6]), [1, 0], y, [2, 3])


def added(x, y, data):
    pl.store(pl.load(x, *whole()), [0, 0], y)
    pl.store(pl.load(x, [0, 0], [1, COLS]), [1, 0], y, atomic=pl.AtomicType.Add)


def cells(x, y, data):
    pl.write(y, [1, 2], pl.read(x, [0, 3]))
    pl.write(y, 0, pl.read(x, COLS + 1))


def boxes(x, y, data):
    data[0:ROWS, 0:COLS] = x[0:ROWS, 0:COLS]
    y[0:2, 1:4] = data[2:4, 0:3]
    y[3, 0:COLS] = x[0]


def assembled(x, y, data):
    for row in pl.parallel(ROWS):
        part = pl.slice(x, [1, COLS], [row, 0])
        y = pl.assemble(y, pl.mul(part, 2.0), [row, 0])


def dropped(x, y, data):
    part = pl.tensor.slice(x, [1, 3], [2, 1], drop_dims=[0])
    y[0, 0:3] = part


def padded(x, y, data):
    part = pl.slice(x, [2, COLS], [3, 0], valid_shape=[1, COLS], pad_value=7)
    pl.store(part, [0, 0], y)


def created(x, y, data):
    scratch = pl.create_tensor([ROWS, COLS], pl.FP32, init_value=3)
    pl.store(pl.add(pl.load(scratch, *whole()), x), [0, 0], y)


def of_tiles(x, y, data):
    tile = pl.load(x, *whole())
    pl.write(tile, [0, 0], 50)
    tile = pl.assemble(tile, pl.slice(tile, [1, 2], [1, 0]), [2, 2])
    pl.write(y, [0, 0], pl.read(tile, [0, 0]))
    pl.store(pl.slice(tile, [1, COLS], [2, 0]), [1, 0], y)


def taken_at_its_line(x, y, data):
    pl.store(pl.load(x, *whole()), [0, 0], data)
    early = pl.slice(data, [1, COLS], [0, 0])
    late = data[0:1, 0:COLS]
    data[0:1, 0:COLS] = 9
    pl.store(early, [0, 0], y)
    pl.store(late, [1, 0], y)


def filled(**parts):
    """Zeros, with some boxes of it written: rows_columns of the first, then values."""
    y = torch.zeros(ROWS, COLS)
    for box, value in parts["boxes"]:
        y[box] = value
    return y


S = slice
EXPECTED = [
    (clipped, [((S(1, 3), S(1, 6)), X[2:4, :5] + 1)]),
    (clamped, [((S(0, 1), S(0, 2)), X[3:4, 4:6])]),
    (shaped, [((S(1, 3), S(0, 3)), X[0].reshape(2, 3))]),
    (added, [(S(0, ROWS), X), (1, X[1] + X[0])]),
    (cells, [((1, 2), X[0, 3]), ((0, 0), X[1, 1])]),
    (boxes, [((S(0, 2), S(1, 4)), X[2:4, 0:3]), (3, X[0])]),
    (assembled, [(S(0, ROWS), 2 * X)]),
    (dropped, [((0, S(0, 3)), X[2, 1:4])]),
    (padded, [(0, X[3]), (1, 7)]),
    (created, [(S(0, ROWS), X + 3)]),
    (of_tiles, [((0, 0), 50), (1, torch.cat([X[2, :2], X[1, :2], X[2, 4:]]))]),
    (taken_at_its_line, [(0, X[0]), (1, 9)]),
]


@pytest.mark.parametrize(("step", "boxes"), EXPECTED, ids=[step.__name__ for step, _ in EXPECTED])
def test_what_they_leave(findings, step, boxes):
    assert findings(step, filled(boxes=boxes)) == []


def beyond(x, y, data):
    pl.load(x, [1, 0], [ROWS, COLS])


def below(x, y, data):
    pl.store(pl.load(x, [0, 0], [1, COLS]), [-1, 0], y)


def short_of_an_axis(x, y, data):
    pl.load(x, [0], [ROWS])


def wide(x, y, data):
    pl.load(x, [0, 0], [2, COLS], valid_shape=[3, COLS])


def another_type(x, y, data):
    pl.store(pl.cast(pl.load(x, *whole()), pl.INT32), [0, 0], y)


def does_not_fit(x, y, data):
    pl.store(pl.load(x, *whole()), [0, 0], y, [2, 2])


def no_tensor(x, y, data):
    pl.load(3, [0], [1])


@pytest.mark.parametrize(("step", "name"), [
    (beyond, "out_of_bounds"), (below, "out_of_bounds"), (short_of_an_axis, "offset_rank"),
    (wide, "valid_shape"), (another_type, "wrong_dtype"), (does_not_fit, "wrong_shape"),
    (no_tensor, "wrong_operand"),
])
def test_what_they_refuse(findings, step, name):
    (found,) = findings(step)
    assert found.partition("/")[2] == name


def test_a_product_of_matrices_is_stored_as_any_float(called):
    @pl.jit.incore
    def kernel(x: pl.Tensor[[4, 4], pl.FP16], y: pl.Out[pl.Tensor[[4, 4], pl.FP16]]):
        tile = pl.move(pl.load(x, [0, 0], [4, 4], target_memory=pl.MemorySpace.Mat), pl.Mem.Left)
        pl.store(pl.matmul(tile, tile), [0, 0], y)

    @pl.jit.host
    def host(x: pl.Tensor[[4, 4], pl.FP16], y: pl.Out[pl.Tensor[[4, 4], pl.FP16]]):
        kernel(x, y, device=0)

    x = torch.eye(4, dtype=torch.float16) * 3
    run = called(host, x, torch.zeros_like(x), ranks=1)
    assert run.names() == []
    assert torch.equal(run.run().run.observed["y"][0], x @ x)
