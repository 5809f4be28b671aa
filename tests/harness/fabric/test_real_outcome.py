"""What of a world's end is a finding: aborted, hang, silence, and nothing else."""

import dataclasses

import msgspec

from faults.process_groups import DroppedCall
from harness.fabric.real_outcome import RankOutcome, RealOutcome
from harness.finding import Verdict
from harness.frontends.torch_distributed.calls import Call, TensorMeta
from harness.frontends.torch_distributed.recorded import LASTI, Fired, _encoder, _Line, place

CALL = Call(
    "all_reduce", 0, (0, 1), op="sum", inputs=(TensorMeta((3,), "float32"),),
    code=place("train.py", "step", 12), lasti=LASTI,
)


def record(*entries):
    whole = [_Line(one) if isinstance(one, Call) else one for one in entries]
    return "".join(_encoder.encode(one).decode() + "\n" for one in whole)


def world(*ranks, faults=()):
    return RealOutcome(path="train.py", ranks=tuple(ranks), faults=faults, subject="gloo, torch 2")


def rank(index, code=0, **named):
    return RankOutcome(rank=index, code=code, order=named.pop("order", 0 if code else -1), **named)


def names(outcome, *given):
    return [(found.kind, found.rank) for found in outcome.findings(*given)]


def test_errors_on_every_survivor_and_right_results_are_fine():
    assert names(world(rank(0, 1), rank(1, -9, record=record(Fired(0)))), ["a", "a"]) == []
    assert names(world(rank(0, printed="a"), rank(1, printed="b")), ["a", "b"]) == []


def test_a_signal_that_no_fault_sent_is_a_finding():
    assert names(world(rank(0, -6), rank(1, 1))) == [("aborted", 0)]
    assert names(world(rank(0, -6, record=record(Fired(0))), rank(1, 1))) == []


def test_a_rank_that_was_still_there_is_a_finding_and_no_abort():
    outcome = world(rank(0, 1), rank(1, -9, expired="plan limit of 3 s", stack="File x"))
    assert names(outcome) == [("hang", 1)]
    (found,) = outcome.findings()
    assert found.message == "rank 1 was still there at its plan limit of 3 s"
    assert found.traceback == "File x"
    assert found.cause


def test_a_wrong_result_without_an_error_is_a_finding_wherever_others_failed():
    assert names(world(rank(0, printed="x"), rank(1, 1)), ["a", "b"]) == [("silence", 0)]
    assert names(world(rank(0, 1, printed="x"), rank(1, 1)), ["a", "b"]) == []


def test_calls_that_do_not_belong_together_are_named_and_silence_about_them_is_a_finding():
    other = dataclasses.replace(CALL, rank=1, op="max", code=place("train.py", "step", 14))
    quiet = world(rank(0, record=record(CALL)), rank(1, record=record(other)))
    (found,) = quiet.findings()
    assert found.kind == "silence"
    assert "op=max) at train.py:14" in found.message
    failed = world(rank(0, 1, record=record(CALL)), rank(1, 1, record=record(other)))
    assert names(failed) == []
    assert "\nthe calls disagree: rank " in str(failed)
    assert world(rank(0, record=record(CALL)), rank(1)).disagreement is None


def test_who_is_to_blame_is_not_judged():
    outcome = world(rank(0, -6), rank(1, printed="x"))
    assert names(outcome, ["a", "b"], {0, 1}) == []
    assert names(outcome, ["a", "b"], {0}) == [("silence", 1)]


def test_a_fault_that_did_not_fire_makes_no_verdict():
    dropped = (DroppedCall(rank=1),)
    assert world(rank(0), rank(1), faults=dropped).verdict() is Verdict.UNKNOWN
    assert world(rank(0), rank(1, record=record(Fired(0))), faults=dropped).verdict() is Verdict.PASS
    assert world(rank(0, -6), rank(1), faults=dropped).verdict() is Verdict.FAIL


def test_the_report_names_who_was_first_and_each_ranks_last_call():
    outcome = world(
        rank(0, 1, order=1, record=record(CALL), log="Traceback\nRuntimeError: closed\n  note"),
        rank(1, -9, order=0, record=record(Fired(0))), faults=(DroppedCall(rank=1),),
    )
    assert str(outcome).splitlines() == [
        "train.py: 2 ranks on gloo, torch 2",
        "fault dropped_call on rank 1: fired 1 times",
        "rank 0: exit code 1; last of 1 calls: all_reduce([3] float32, op=sum) at train.py:12",
        "    RuntimeError: closed",
        "rank 1: killed by SIGKILL; no call",
        "first to fail: rank 1",
    ]


def test_the_error_is_what_native_code_said_not_what_faulthandler_adds():
    log = "terminate called\n  what():  sizes differ\nFatal Python error: Aborted\nExtension modules: x"
    assert rank(0, -6, log=log).error == "what():  sizes differ"
    assert rank(0, -6, log="Fatal Python error: Aborted\nExtension modules: x").error.endswith("Aborted")
    assert rank(0, 0, log=log).error == ""


def test_it_travels_as_json():
    one = rank(0, 1, record=record(CALL), log="x")
    assert msgspec.json.decode(msgspec.json.encode(one), type=RankOutcome) == one
    assert one.calls == (CALL,)
