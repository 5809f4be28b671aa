"""What a region does to the memory it captures, told of its statements."""

import ast

import pytest

from harness.frontends.pypto.directions import accesses


def told(text, *names):
    found, callees, aliases = accesses(ast.parse(text).body, list(names))
    marks = {name: "r" * one.reads + "w" * one.writes for name, one in found.items()}
    return marks, [ast.unparse(one) for one in callees], aliases


@pytest.mark.parametrize(("text", "marks"), [
    ("t = pl.load(x, [0, 0], [1, 4])", {"x": "r"}),
    ("pl.store(pl.add(x, x), [0, 0], out)", {"x": "r", "out": "w"}),
    ("pl.store(x, [0, 0], output_tensor=out)", {"x": "r", "out": "w"}),
    ("pl.store(x, [0, 0], out, atomic=pl.AtomicType.Add)", {"x": "r", "out": "rw"}),
    ("out = pl.assemble(out, x, [0, 0])", {"x": "r", "out": "w"}),
    ("out[0:4, :] = x[0:4, :]", {"x": "r", "out": "w"}),
    ("pl.write(out, [i, 0], pl.read(x, [0, 0]))", {"out": "w", "x": "r", "i": "r"}),
    ("pld.system.notify(target=sig, peer=p, offsets=[0], value=1, op=o)", {"sig": "w", "p": "r"}),
    ("pld.system.wait(sig, [0], 1, cmp=c)", {"sig": "r"}),
    ("pld.tensor.put(win, p, x)", {"win": "w", "x": "r", "p": "r"}),
    ("pld.tensor.get(out, p, win)", {"win": "r", "out": "w"}),
    ("pld.tile.remote_store(src_tile=t, target=win, peer=p, offsets=[0, 0])", {"win": "w", "t": "r"}),
    ("win = pld.tensor.allreduce(win, sig, op=o)", {"win": "rw", "sig": "rw"}),
])
def test_operations(text, marks):
    assert told(text, *marks)[0] == marks


def test_another_name_stands_for_the_same_memory():
    text = """
y = out
y = pl.store(t, [0, 0], y)
for i, (z,) in pl.range(3, init_values=(win,)):
    z = pl.store(t, [0, 0], z)
"""
    marks, _, aliases = told(text, "out", "win", "t")
    assert marks == {"out": "w", "win": "rw", "t": "r"}  # win: as an argument of the loop
    assert (aliases["y"], aliases["z"]) == ("out", "win")


def test_a_name_that_is_bound_anew_stands_for_nothing_captured():
    marks, _, aliases = told("x = pl.load(x, [0, 0], [1, 4])\npl.store(x, [0, 0], out)", "x", "out")
    assert marks == {"x": "r", "out": "w"}
    assert "x" not in aliases


def test_kernels_are_left_to_whoever_knows_their_parameters():
    marks, callees, _ = told("self.step(x, out, 1, s=sig)", "x", "out", "sig")
    assert callees == ["(self.step, ('x', 'out', None), {'s': 'sig'})"]
    assert marks == {"x": "", "out": "", "sig": ""}
