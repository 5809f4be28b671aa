"""Linearizability: porcupine's histories, a brute-force judge, registers, witnesses, the limit."""

import itertools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import ILLEGAL, NEVER, Linearizable, Op
from harness.checkers.linear_registers import register_verdict
from harness.checkers.linear_search import search
from harness.checkers.linearizable import judge_history, judge_object, linearizable
from harness.errors import Undecided

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "porcupine"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="porcupine's histories are not beside the repository (shared/data)"
)


class Register:
    """Reads, writes and compare-and-set of one value, None at first."""

    def initial(self):
        return None

    def step(self, state, op):
        if op.kind == "write":
            return op.value
        if op.kind == "cas":
            old, new = op.value
            if op.result is not None and op.result != (state == old):
                return ILLEGAL
            return new if state == old else state
        return state if op.result == (state,) or op.result is None else ILLEGAL

    def asks(self, op):
        return op.kind == "read" or (op.kind == "cas" and op.result is False)

    def register(self, op):
        if op.kind == "write":
            return "write", op.value
        return ("read", (op.result or (None,))[0]) if op.kind == "read" else None


class Text:
    """Get, put and append of a string."""

    def initial(self):
        return ""

    def step(self, state, op):
        if op.kind == "put":
            return op.value
        if op.kind == "append":
            return state + op.value
        return state if op.result in (state, None) else ILLEGAL

    def asks(self, op):
        return op.kind == "get"

    def register(self, op):
        return None


def jepsen(path):
    """Operations of an etcd history; a compare-and-set or write that timed out may have happened."""
    begun, found = {}, []
    pattern = re.compile(r"INFO\s+jepsen\.util - (\d+)\s+:(\w+)\s+:(\w+)\s+(.*)$")
    for time, line in enumerate(path.read_text().splitlines()):
        match = pattern.match(line)
        if match is None:
            continue
        client, how, kind, text = match.groups()
        numbers = tuple(map(int, re.findall(r"-?\d+", text)))
        if how == "invoke":
            value = numbers if kind == "cas" else numbers[0] if numbers else None
            begun[client] = Op(int(client), "register", kind, value, None, time)
            continue
        op = begun.pop(client)
        if how == "ok":
            result = (numbers[0] if numbers else None,) if kind == "read" else True
            found.append(op._replace(returned=time, result=result))
        elif how == "fail" and kind == "cas" and "timed-out" not in text:
            found.append(op._replace(returned=time, result=False))
        elif kind != "read":
            found.append(op)
    return found + [op for op in begun.values() if op.kind != "read"]


def key_values(path):
    begun, found = {}, []
    pattern = re.compile(
        r'{:process (\d+), :type :(\w+), :f :(\w+), :key "(.*)", :value (?:nil|"(.*)")}'
    )
    for time, line in enumerate(path.read_text().splitlines()):
        client, how, kind, key, value = pattern.match(line).groups()
        if how == "invoke":
            begun[client] = Op(int(client), key, kind, value, None, time)
        else:
            op = begun.pop(client)
            found.append(op._replace(returned=time, result=value))
    return found + list(begun.values())


@needs_data
def test_every_verdict_is_porcupine_s():
    expected = json.loads((DATA / "expected.json").read_text())
    assert len(expected) == 108
    for name, verdict in expected.items():
        is_jepsen = name.startswith("jepsen")
        ops, model = (jepsen, Register()) if is_jepsen else (key_values, Text())
        assert linearizable(ops(DATA / name), model) is (verdict == "ok"), name


@needs_data
def test_a_witness_of_a_long_history_is_short_and_contradicts_itself():
    ops = key_values(DATA / "kv" / "c10-bad.txt")
    for key, judged in judge_history(ops, Text()).items():
        assert len(judged.witness) < 12
        mine = [op for op in ops if op.key == key]
        assert set(judged.witness) <= set(mine)
        assert len(judged.order) < len(mine)


def one_by_one(ops, model):
    """The definition: some order of some of the operations, all that returned among them."""
    pending = [op for op in ops if op.returned == NEVER]
    sure = [op for op in ops if op.returned != NEVER]
    for count in range(len(pending) + 1):
        for some in itertools.combinations(pending, count):
            for order in itertools.permutations([*sure, *some]):
                if any(
                    two.returned < one.called for one, two in itertools.combinations(order, 2)
                ):
                    continue
                state = model.initial()
                for op in order:
                    state = model.step(state, op)
                    if state is ILLEGAL:
                        break
                else:
                    return True
    return False


@st.composite
def histories(draw, kinds=("read", "write", "cas"), most=6, *, unique=False):
    found = []
    for number in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(kinds))
        called = draw(st.integers(0, 10))
        returned = called + draw(st.integers(0, 6)) if draw(st.integers(0, 5)) else NEVER
        small = st.integers(0, 2)
        if kind == "read":
            seen = draw(st.one_of(st.none(), st.integers(0, most if unique else 2)))
            op = Op(number, "x", kind, None, (seen,), called, returned)
        elif kind == "write":
            op = Op(number, "x", kind, number if unique else draw(small), True, called, returned)
        else:
            value = (draw(small), draw(small))
            op = Op(number, "x", kind, value, draw(st.booleans()), called, returned)
        found.append(op if returned != NEVER else op._replace(result=None))
    return found


@given(histories())
@settings(deadline=None)
def test_the_search_agrees_with_the_definition(ops):
    assert search(ops, Register()).legal == one_by_one(ops, Register())


@given(histories(("read", "write"), most=7, unique=True))
@settings(deadline=None)
def test_registers_are_judged_as_by_the_search(ops):
    told = register_verdict(ops, Register(), None)
    assert told is not None
    assert (not told) == search(ops, Register()).legal
    if told:
        assert set(told) <= set(ops)


@given(histories(most=7))
@settings(deadline=None)
def test_a_witness_contradicts_itself_whatever_the_others_did(ops):
    judged = judge_object(ops, Register())
    if judged.legal:
        return
    assert judged.witness
    others = [
        op._replace(returned=NEVER, result=None)
        for op in ops if op not in judged.witness and not Register().asks(op)
    ]
    assert search([*judged.witness, *others], Register()).legal is False


def test_a_value_that_comes_back_has_no_order():
    ops = [
        Op(0, "x", "write", 1, True, 0, 10), Op(1, "x", "read", None, (1,), 1, 2),
        Op(2, "x", "read", None, (None,), 3, 4), Op(1, "x", "read", None, (1,), 11, 12),
    ]
    judged = judge_object(ops, Register())
    assert judged.legal is False
    assert {op.called for op in judged.witness} >= {1, 3}
    assert judge_object([ops[0], *ops[2:]], Register()).legal


def test_a_long_history_of_registers_is_judged_without_a_search():
    ops = []
    for number in range(3_000):
        ops.append(Op(0, "x", "write", number, True, 4 * number, 4 * number + 2))
        ops.append(Op(1, "x", "read", None, (number,), 4 * number + 1, 4 * number + 3))
    assert not judge_history(ops, Register(), limit=10)
    wrong = [*ops, Op(2, "x", "read", None, (5,), 9_000, 9_001)]
    (judged,) = judge_history(wrong, Register(), limit=10).values()
    assert wrong[-1] in judged.witness
    assert len(judged.witness) <= 4


def test_too_long_a_search_is_no_verdict_and_no_finding(monkeypatch):
    ops = [Op(n, "x", "cas", (n % 3, (n + 1) % 3), None) for n in range(9)]
    ops.append(Op(9, "x", "read", None, (77,), 20, 21))
    assert judge_object(ops, Register(), limit=50).legal is None
    checker = Linearizable(lambda run: run, Register(), limit=50)
    with pytest.raises(Undecided, match="x: no verdict within 50 steps"):
        list(checker.check(ops))
    (finding,) = Linearizable(lambda run: run, Register()).check(ops)
    assert finding.name == "linearizable/not_linearizable"
    assert any("(77,)" in line for line in finding.evidence)
