"""Regions made functions: what they capture, what comes back, whose lines errors name."""

import linecache
import traceback

import pytest

from harness.errors import UserFileError
from harness.frontends.pypto.modules import modules
from harness.frontends.pypto.operate import TASK, Task
from harness.frontends.pypto.rewriting import DOOR, has_tasks, rewritten

pl = modules()["pypto.language"]
MODULE = 100


class Door:
    """Stands for regions.enter: notes each region, and runs it at once."""

    def __init__(self):
        self.seen = []

    def __call__(
        self, kind, body, names, scope, outside, access, aliases, callees, *args, __named__, **options
    ):
        self.seen.append((kind, names, outside, args, options, __named__))
        indexed = body.__code__.co_argcount > len(names)
        held = [scope.get(name) for name in names]
        found = {}
        for block in range(args[0] if indexed else 1):
            found = body(*([block] if indexed else []), *held)
        return (f"task {len(self.seen)}", *(found[name] for name in outside))


def made(function):
    door = Door()
    return rewritten(function, door), door


def plain(x, y=2, *, z=3):
    return x + y + z


def test_a_function_without_regions_stays_itself():
    assert rewritten(plain, Door()) is plain


def chain(x, y=2, *, z=3):
    total = x
    for step in range(3):
        with pl.at(level=1, deps=[x]) as tid:
            own = step + MODULE
            total = total + own + z
    return total, tid, y


def test_a_region_captures_what_it_reads_and_hands_back_what_is_read_later():
    function, door = made(chain)
    assert function(1) == (1 + 3 * MODULE + 3 + 3 * 3, "task 3", 2)
    kind, names, outside, args, options, named = door.seen[0]
    assert (kind, names, outside, args, named) == ("at", ("step", "total", "z"), ("total",), (), True)
    assert options == {"level": 1, "deps": [1]}
    assert function.__name__ == "chain"
    assert has_tasks(function)


def two_regions(x):
    with pl.at(level=1):
        own = x + 1
        y = own
    with pl.at(level=1):
        own = x + 2
        y = y + own
    return y


def test_a_name_that_each_region_binds_for_itself_is_not_handed_on():
    function, door = made(two_regions)
    assert function(1) == 5
    assert [(names, outside) for _, names, outside, *_ in door.seen] == [
        (("x",), ("y",)), (("x", "y"), ("y",))
    ]


def maybe(x, flag):
    y = x
    with pl.at(level=1):
        if flag:
            y = x + 1
    return y


def test_a_name_that_is_bound_on_one_way_only_keeps_its_value_on_the_other():
    function, _ = made(maybe)
    assert (function(1, True), function(1, False)) == (2, 1)


def nested(x):
    with pl.at(level=1):
        with pl.at(level=2):
            y = x + 1
        z = y + 1
    return z


def test_regions_in_regions():
    function, door = made(nested)
    assert function(1) == 3
    assert [(names, outside) for _, names, outside, *_ in door.seen] == [
        (("x",), ("z",)), (("x",), ("y",))
    ]


def blocks(n):
    found = []
    for i in pl.spmd(n):
        found += [i]
    with pl.spmd(n, deps=[]) as tid:
        found.append("with")
    return found, tid


def test_spmd_in_both_forms():
    function, door = made(blocks)
    assert function(2) == ([0, 1, "with"], "task 2")
    assert [(kind, named) for kind, *_, named in door.seen] == [("spmd", True), ("spmd", True)]


def test_closures_and_defaults_stay():
    shift = 10

    def inner(x, by=5):
        with pl.at(level=1):
            y = x + by + shift
        return y

    function, _ = made(inner)
    shift = 20
    assert function(1) == 26
    assert function.__qualname__ == inner.__qualname__


def failing(x):
    with pl.at(level=1):
        y = 1 / x
    return y


def test_an_error_names_the_users_line():
    function, _ = made(failing)
    with pytest.raises(ZeroDivisionError) as caught:
        function(0)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert linecache.getline(last.filename, last.lineno).strip() == "y = 1 / x"
    assert (last.name, last.filename) == ("failing", __file__)


def returns(x):
    with pl.at(level=1):
        return x


def leaves(n):
    for _ in range(n):
        with pl.at(level=1):
            break


@pytest.mark.parametrize(
    ("function", "what"), [(returns, "`return` inside pl.at"), (leaves, "`break` out of")]
)
def test_what_leaves_a_region_is_refused_with_its_line(function, what):
    with pytest.raises(UserFileError, match=f"test_rewriting.py:[0-9]+: {what}"):
        rewritten(function, Door())


def loops_inside(n):
    with pl.at(level=1):
        for i in range(n):
            if i == 1:
                break
    return n


def test_a_loop_inside_a_region_may_be_left():
    assert made(loops_inside)[0](3) == 3


def no_rounds(x, n):
    for _, (carried,) in pl.range(n, init_values=(x,)):
        out = pl.yield_(carried)
    return out


@pytest.fixture
def on_a_device():
    token = TASK.set(Task(None, 0))
    yield
    TASK.reset(token)


@pytest.mark.usefixtures("on_a_device")
def test_a_loop_of_no_rounds_leaves_the_initial_value():
    function, _ = made(no_rounds)
    assert function("initial", 0) == "initial"
    assert function("initial", 2) == "initial"


def counts_up(x):
    for (y,) in pl.while_(init_values=(x,)):
        pl.cond(y < 10)
        z = pl.yield_(y + 3)
    return z


@pytest.mark.usefixtures("on_a_device")
def test_a_while_ends_when_its_condition_does_not_hold():
    function, _ = made(counts_up)
    assert function(0) == 12


def submits(kernel):
    return pl.submit(kernel)


def test_a_function_that_submits_kernels_makes_tasks():
    assert has_tasks(submits)
    assert not has_tasks(plain)
    assert DOOR not in plain.__code__.co_freevars
