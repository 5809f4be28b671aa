"""Where calls meet: mismatches reach every member, limits run in virtual time, deaths are told."""

from __future__ import annotations

import pytest

from harness import registry

CATCHING = """
try:
    {call}
except RuntimeError as error:
    print(type(error).__name__, "|", error)
else:
    print("nothing")
"""


def test_every_member_of_a_mismatch_gets_an_error(script):
    call = "dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)"
    run = script(CATCHING.format(call=call), 3).run
    assert len(run.printed) == 3
    for text in run.printed:
        assert text.startswith("CollectiveMismatch | ")
        assert "rank 1 reduces with max, rank 0 reduces with sum" in text


def test_ends_of_a_message_that_do_not_fit(script):
    call = "dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(2), 0)"
    outcome = script(CATCHING.format(call=call), 2)
    assert all("CollectiveMismatch" in text for text in outcome.run.printed)


def test_a_limit_ends_a_wait_that_nobody_can_end(script, begin):
    outcome = script("""
        import time
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
        begun = time.time()
        try:
            if dist.get_rank() != 2:
                dist.barrier()
        except dist.DistBackendError as error:
            assert 5 <= time.time() - begun < 5.1
            print(error)
    """, 3, begin=begin)
    told = outcome.run.printed
    assert "Timed out waiting 5000ms; not arrived: rank 2" in told[0]
    assert "Timed out waiting 5000ms; not arrived: rank 2" in told[1]
    assert told[2] == ""
    assert [event.kind for event in outcome.run.events].count("expired") == 2


def test_who_comes_after_the_limit_finds_the_others_gone(script, begin):
    outcome = script("""
        import time
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
        time.sleep(20 * dist.get_rank())
        try:
            dist.barrier()
        except dist.DistBackendError as error:
            print(error)
    """, 2, begin=begin)
    assert "not arrived: rank 1" in outcome.run.printed[0]
    assert "Connection closed by peer: rank 0 has given up" in outcome.run.printed[1]


def test_a_limit_of_one_wait(script):
    outcome = script("""
        if rank == 0:
            work = dist.irecv(torch.empty(1), 1)
            try:
                work.wait(timedelta(seconds=2))
            except dist.DistBackendError as error:
                print(error)
    """, 2)
    assert "Timed out waiting 2000ms" in outcome.run.printed[0]


def test_a_limit_decides_nothing_while_somebody_can_move(script, begin):
    outcome = script("""
        import time
        dist.init_process_group("gloo", timeout=timedelta(seconds=5))
        time.sleep(4 * dist.get_rank())
        dist.barrier()
    """, 2, begin=begin)
    assert outcome.findings == ()


def test_the_default_limit_is_no_limit(script):
    outcome = script("if rank: dist.barrier()", 3)
    assert outcome.run.ended == "blocked"
    assert outcome.findings[0].name == "torch/missing_collective"


@pytest.mark.parametrize("begun", ["gloo", "gloo\", timeout=timedelta(seconds=9), init_method=\"env://"])
def test_a_rank_that_dies_ends_the_others_with_an_error(script, begin, begun):
    crash = registry.faults()["crash"](rank=1, nth=3)  # launch, init, the first barrier
    outcome = script(f"""
        dist.init_process_group("{begun}")
        for _ in range(3):
            try:
                dist.barrier()
            except RuntimeError as error:
                print(error)
                raise
    """, 3, begin=begin, faults=(crash,))
    assert outcome.run.dead == [1]
    assert outcome.run.peers_lost == [0, 2] or sorted(outcome.run.peers_lost) == [0, 2]
    assert outcome.findings == ()
    assert "Connection closed by peer: rank 1 has died" in outcome.run.printed[0]


def test_the_first_sent_is_received_first_from_any_rank(script):
    outcome = script("""
        if rank == 0:
            t = torch.empty(1)
            print(dist.recv(t), dist.recv(t))
        else:
            dist.send(torch.ones(1), 0)
    """, 3)
    assert outcome.run.printed[0] in ("1 2\n", "2 1\n")


def test_what_is_sent_is_what_it_was_at_the_call(script):
    outcome = script("""
        x = torch.ones(4)
        work = dist.all_reduce(x, async_op=True)
        x.add_(10)
        work.wait()
        print(x.tolist())
    """, 2)
    assert outcome.run.printed[0] == "[2.0, 2.0, 2.0, 2.0]\n"
    assert outcome.findings[0].kind == "changed_in_flight"
