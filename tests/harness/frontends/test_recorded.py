"""A rank's record of calls: what was appended comes back, but for a cut-off end; nothing else passes."""

import os

import pytest

from harness.errors import UsageError
from harness.frontends.torch_distributed.calls import Call, TensorMeta
from harness.frontends.torch_distributed.recorded import Fired, append, lines, place, stand_in


def given(number):
    """Two lines of code."""
    frame = given.__code__
    return frame, number


CALL = Call(
    "all_to_all_single", 1, (0, 1), "0", 3, inputs=(TensorMeta((4, 2), "bfloat16", (2, 1), 0, 0, 16),),
    outputs=(TensorMeta((4, 2), "bfloat16", (2, 1), 1, 0, 16),), splits=((1, 3), (2, 2)),
    async_op=True, code=place("a/train.py", "Model.step", 41), lasti=2,
)


@pytest.fixture
def record():
    fd = os.memfd_create("record")
    yield fd
    os.close(fd)


def whole(fd):
    return os.pread(fd, os.fstat(fd).st_size, 0)


def test_calls_and_faults_come_back_in_order(record):
    for entry in (Fired(0), CALL, Fired(1, 0)):
        append(record, entry)
    assert list(lines(whole(record))) == [Fired(0), CALL, Fired(1, 0)]


def test_a_stand_in_has_file_function_and_line_of_the_instruction():
    code, lasti = stand_in(given.__code__, given.__code__.co_code.rindex(b"S\x00"))
    assert (code.co_filename, code.co_qualname) == (__file__, "given")
    line = next(n for start, end, n in code.co_lines() if start <= lasti < end)
    assert line == given.__code__.co_firstlineno + 3
    assert stand_in(None, -1) == (None, -1)


def test_a_line_that_was_cut_off_is_left_out(record):
    append(record, CALL)
    append(record, CALL)
    assert list(lines(whole(record)[:-5])) == [CALL]
    assert list(lines(b"")) == []


@pytest.mark.parametrize("line", [
    b'{"type":"fired","index":"one"}', b'{"type":"fired","index":1,"more":2}', b'{"type":"code"}', b"[]",
    b'{"type":"call","call":{"kind":"send","rank":0,"group":[0],"code":["a","b"]}}', b"{",
])
def test_what_is_no_record_is_refused_with_its_line(line):
    with pytest.raises(UsageError, match="a rank's record of calls, line 2: "):
        list(lines(b'{"type":"fired","index":0}\n' + line + b"\n"))
