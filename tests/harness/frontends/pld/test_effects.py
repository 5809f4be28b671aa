"""What a kernel does to its arguments, by its annotations and by its body.

Annotations of pld functions are evaluated when a function is defined, so nothing is imported from
`__future__`.
"""

import pytest

from harness.frontends.pypto.effects import effects_of
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.tasks import makes_tasks

pl = modules()["pypto.language"]
pld = modules()["pypto.language.distributed"]
Vector = pl.Tensor[[1, 4], pl.FP32]
Window = pld.DistributedTensor[[1, 4], pl.FP32]
Cell = pld.DistributedTensor[[1, 1], pl.INT32]


@pl.jit.incore
def pushes(x: Vector, win: Window, done: Cell):
    pld.tile.remote_store(pl.load(x, [0, 0], [1, 4]), target=win, peer=0, offsets=[0, 0])
    pld.system.notify(done, peer=0, offsets=[0, 0], value=1, op=pld.NotifyOp.Set)
    return x


@pl.jit.incore
def adds(win: Window, y: pl.Out[Vector]):
    tile = pl.add(pl.load(win, [0, 0], [1, 4]), 1.0)
    win = pl.store(tile, [0, 0], win)
    return win, pl.store(tile, [0, 0], y)


@pl.jit.inline
def send(data, win):
    pld.tensor.put(win, 0, data)


@pl.jit.incore
def calls(x: Vector, win: Window):
    send(x, win=win)


@pl.jit.incore
def recurs(x: Vector, win: Window):
    recurs(x, win)
    send(x, win)


@pl.jit.incore
def waits(done: Cell):
    if pl.read(done, [0, 0]) > 1:
        return None
    pld.system.wait(done, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
    return done


@pl.program
class Methods:
    @pl.function(type=pl.FunctionType.Inline)
    def deep(self, x: Vector, win: Window):
        pl.store(pl.load(x, [0, 0], [1, 4]), [0, 0], win)

    @pl.function(type=pl.FunctionType.InCore)
    def top(self, x: Vector, win: Window):
        self.deep(x, win)


@pytest.mark.parametrize(("function", "owner", "directions", "results"), [
    (pushes, None, ["in", "out", "out"], [0]),
    (adds, None, ["inout", "out"], [0, 1]),
    (calls, None, ["in", "out"], None),
    (recurs, None, ["in", "inout"], None),
    (waits, None, ["in"], None),
    (Methods.functions["top"], Methods.owner, ["in", "out"], None),
])
def test_what_is_written_is_no_in(function, owner, directions, results):
    found = effects_of(function, owner)
    assert (found.directions, found.results) == (directions, results)


def test_declared_directions_stay():
    @pl.jit.incore
    def reads_its_out(x: Vector, y: pl.Out[Vector]):
        pl.store(pl.add(x, pl.load(y, [0, 0], [1, 4])), [0, 0], y)

    assert effects_of(reads_its_out, None).directions == ["in", "out"]


def test_without_its_source_a_kernel_is_as_declared():
    made = {"pl": pl, "Vector": Vector}
    exec("def blind(x: Vector, y: pl.Out[Vector]):\n    pl.store(x, [0, 0], x)", made)
    assert effects_of(pl.jit.incore(made["blind"]), None).directions == ["in", "out"]


def one(x, win, done):
    pushes(x, win, done)


def two(x, win, done):
    pushes(x, win, done)
    waits(done)


def in_a_loop(x, win, done):
    for _ in pl.range(3):
        pushes(x, win, done)


def in_a_function(x, win, done):
    inner(x, win, done)
    waits(done)


@pl.jit.inline
def inner(x, win, done):
    pushes(x, win, done)


def itself(x, win, done):
    itself_too(x, win, done)


itself_too = pl.jit(itself)


@pytest.mark.parametrize(("body", "many"), [
    (one, False), (two, True), (in_a_loop, True), (in_a_function, True), (itself, False),
])
def test_kernels_are_tasks_where_there_are_several(body, many):
    assert makes_tasks(pl.jit(body), None) is many
