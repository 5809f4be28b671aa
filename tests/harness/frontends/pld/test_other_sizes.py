"""Host calls on other numbers of devices than the main names, and with other dynamic extents."""

import textwrap

import msgspec
import pytest
import torch

from harness import corpus, registry
from harness.errors import PlanError, UsageError
from harness.finding import Verdict
from harness.frontends.pypto.calls import HostCall
from harness.frontends.pypto.other_sizes import Extents, contents
from harness.frontends.pypto.programs import program_of
from harness.frontends.pypto.scenarios import call_of, scenario_named, scenarios_in, scenarios_named
from harness.hunt import hunt
from harness.plan import Plan
from harness.portfolio import Order, Target
from harness.report.hunt_text import plain, reason_of, summary, verdict_of
from harness.report.text import report
from harness.run import run

PROGRAM = textwrap.dedent("""
    import sys
    import torch
    import pypto.language as pl
    import pypto.language.distributed as pld
    from pypto.ir.distributed_compiled_program import DistributedConfig
    from pypto.runtime import RunConfig

    NR = FIRST
    LENGTH = pl.dynamic("LENGTH")
    TILE = 8

    @pl.jit.incore
    def copy(
        x: pl.Tensor[[1, LENGTH], pl.FP32], y: pl.Out[pl.Tensor[[1, LENGTH], pl.FP32]],
        data: pl.InOut[pld.DistributedTensor[[1, LENGTH], pl.FP32]],
        signal: pl.InOut[pld.DistributedTensor[[1, 1], pl.INT32]],
        length: pl.Scalar[pl.INDEX],
    ):
        ctx = pld.get_comm_ctx(data)
        me, n = pld.rank(ctx), pld.nranks(ctx)
        for k in pl.range(0, length, TILE):
            rest = REST
            data = pl.store(pl.load(x, [0, k], [1, TILE], valid_shape=[1, rest]), [0, k], data)
        pld.system.notify(signal, peer=READER, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal, offsets=[0, 0], expected=NEEDED, cmp=pld.WaitCmp.Ge)
        for k in pl.range(0, length, TILE):
            rest = REST
            seen = pld.tile.remote_load(
                data, peer=(me + 1) % n, offsets=[0, k], shape=[1, TILE], valid_shape=[1, rest]
            )
            y = pl.store(seen, [0, k], y)
        return y

    @pl.jit.host
    def ring(
        x: pl.Tensor[[NR, 1, LENGTH], pl.FP32], y: pl.Out[pl.Tensor[[NR, 1, LENGTH], pl.FP32]]
    ):
        data = pld.alloc_window_buffer(LENGTH * pl.FP32.get_byte())
        signal = pld.alloc_window_buffer([1, 1], dtype=pl.INT32)
        for r in pl.range(pld.world_size()):
            copy(
                x[r], y[r], pld.window(data, [1, LENGTH], dtype=pl.FP32),
                pld.window(signal, [1, 1], dtype=pl.INT32), LENGTH, device=r,
            )

    def main():
        n = int(sys.argv[1]) if len(sys.argv) > 1 else 2
        config = RunConfig(distributed_config=DistributedConfig(device_ids=range(n)))
        x = torch.arange(n * 16, dtype=torch.float32).reshape(n, 1, 16) + 1
        y = torch.zeros_like(x)
        ring(x, y, config=config)
        assert torch.equal(y, x.roll(-1, 0))

    main()
""")
SIZED = {
    "FIRST": 'pl.dynamic("NR")', "REST": "pl.min(length - k, TILE)", "READER": "(me + n - 1) % n",
    "NEEDED": "1",
}


def text(**changes):
    source = PROGRAM
    for name, value in {**SIZED, **changes}.items():
        source = source.replace(name, value)
    return source.encode()


def of(source, wanted="ring"):
    made, = scenarios_named("ring.py", source, wanted, ())
    return made


def outcome(made, ranks, **params):
    """The default run."""
    values = msgspec.convert(params, made.params)
    return run(Plan(scenario=made.name, params=values, ranks=ranks), scenario=made, races=True)


@pytest.mark.parametrize("wanted", ["main", "ring"])
def test_a_correct_program_runs_on_any_number_of_devices(wanted):
    made = of(text(), wanted)
    assert (made.ranks, made.usual_ranks) == ((1, 64), (2, 2))
    for ranks in (1, 3, 5):
        done = outcome(made, ranks)
        assert done.findings == ()
        rows = torch.stack(done.run.observed["y"])
        assert rows.shape == (ranks, 1, 16)
        assert len(rows.unique()) == rows.numel(), "each rank was given other numbers"


def test_a_bug_that_two_devices_do_not_show_is_found_on_three():
    made, = scenarios_in("ring.py", text(READER="(me + 1) % n"))
    assert hunt(Order(made, 1, plans_max=40)).finding is None
    found = hunt(Order(made, 1, ranks=(3, 4), plans_max=40))
    assert found.finding is not None
    assert found.outcome.plan.ranks in (3, 4)


def test_an_output_that_depends_on_the_schedule_is_one_on_any_number_of_devices():
    made = of(text(NEEDED="0"), "main")
    found = hunt(Order(made, 1, ranks=(3, 3), plans_max=60, until=Target("golden")))
    assert found.finding is not None
    assert found.finding.name == "golden/depends_on_schedule"
    assert "no main checks those of 3 ranks" in found.finding.message
    assert "integrity" not in {one.checker for one in found.outcome.findings}


def test_a_seed_on_other_devices_and_of_other_sizes_replays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.py").write_bytes(text(NEEDED="0"))
    made, = registry.find_all("ring.py::ring")
    plan = Plan(
        scenario=made.name, ranks=3, params=msgspec.convert({"sizes": [["LENGTH", 7]]}, made.params)
    )
    first = run(plan, scenario=made, races=True)
    assert first.findings
    program_of.cache_clear()
    again, scenario = corpus.plan_of_token(corpus.token_of(plan))
    second = run(again, scenario=scenario, races=True)
    assert second.run.identity() == first.run.identity()
    assert second.finds(first.findings[0].identity) is not None
    assert second.run.observed["y"][0].shape == (1, 7)


def test_a_host_function_is_hunted_with_odd_sizes_and_the_main_with_its_own():
    assert of(text(), "main").params().__struct_fields__ == ("argv",)
    made = of(text())
    assert made.params().sizes == (("LENGTH", 16),)
    for length in (16, 1, 3, 7, 15, 17, 33):
        assert outcome(made, 2, sizes=[["LENGTH", length]]).findings == ()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"sizes": [["LENGTH", 2]]}, made.params)


def test_a_finding_of_an_odd_size_says_which():
    made = of(text(REST="TILE"))
    found = hunt(Order(made, 1, plans_max=200, until=Target("out_of_bounds")))
    assert found.finding is not None, "full tiles do not fit what is left"
    assert found.outcome.plan.params.sizes != (("LENGTH", 16),)
    assert f"sizes={found.outcome.plan.params.sizes!r}" in report(found.outcome, found.finding, made)


def test_a_fixed_number_of_devices_is_refused_and_the_way_out_is_named():
    fixed = of(text(FIRST="2"))
    assert fixed.ranks == (2, 2)
    assert dict(fixed.params().sizes) == {"LENGTH": 16}
    with pytest.raises(UsageError, match=r"ring runs with 2\.\.2 ranks: .* from its --args"):
        hunt(Order(fixed, 1, ranks=(3, 3), plans_max=1))
    seed = scenario_named("ring.py", text(FIRST="2"), "ring")
    with pytest.raises(PlanError, match=r"ranks: 3; ring runs on 2 devices"):
        seed.ready(seed.params(), 3)


def test_a_plan_with_a_size_that_is_none_is_refused():
    seed = scenario_named("ring.py", text(), "ring")
    with pytest.raises(PlanError, match="'WIDTH' is no free dynamic extent of ring; allowed LENGTH"):
        seed.ready(msgspec.convert({"sizes": [["WIDTH", 3]]}, seed.params), 2)


def captured():
    return call_of("ring.py", text(), (), "ring").snapshot.call


def test_sizes_begin_with_the_program_s_and_stay_near_it():
    assert Extents(captured()).choices("LENGTH") == (16, 1, 3, 7, 15, 17, 33)
    one = captured().copied()
    one.args = [tensor[:, :, :1].contiguous() for tensor in one.args]
    assert Extents(one).choices("LENGTH") == (1, 3, 2)


def test_what_a_scalar_may_follow_is_left_alone():
    call = captured().copied()
    call.args.append(16)
    call.function.annotations.append(None)
    try:
        assert Extents(call).sizes == {}
        call.args[-1] = 2
        assert Extents(call).world == frozenset()
    finally:
        call.function.annotations.pop()


def test_a_call_on_retained_windows_is_left_alone():
    call = captured()
    kept = HostCall(call.function, call.owner, call.args, call.device_ids, kept=[[b"", b""]])
    assert (Extents(kept).world, Extents(kept).sizes) == (frozenset(), {})


def test_one_tensor_given_twice_stays_one():
    call = captured().copied()
    call.args[1] = call.args[0]
    made = Extents(call).made(call, 3, {})
    assert made.args[0] is made.args[1]
    assert made.device_ids == (0, 1, 2)


def test_contents():
    floats = contents(torch.ones(2, 4), (3, 5), 0, rows=3)
    assert floats.shape == (3, 5)
    assert len(floats.unique()) == 15
    counts = contents(torch.tensor([[2, 4], [3, 2]], dtype=torch.int32), (5, 5), 1, rows=5)
    assert counts.dtype is torch.int32
    assert set(counts.flatten().tolist()) == {2, 3, 4}
    assert not contents(torch.zeros(2, 4), (3, 5), 0, rows=3).any()
    assert contents(torch.tensor([True, False]), (7,), 0, rows=7).dtype is torch.bool
    assert contents(torch.ones(2), (0,), 0, rows=0).shape == (0,)


# What a program refuses -----------------------------------------------------------------------------

CHECKED = {
    "host_assert": ("    data = pld.alloc", "    assert LENGTH % 8 == 0, f'{int(LENGTH)} is ragged'\n"),
    "host_raise": ("    data = pld.alloc", "    if LENGTH % 8: raise ValueError('ragged')\n"),
    "static_assert": ("    for k in pl.range(0, length, T", "    pl.static_assert(LENGTH % 8 == 0)\n"),
    "world": ("    data = pld.alloc", "    assert pld.world_size() % 2 == 0, 'odd'\n"),
}


def refusing(which, **changes):
    before, line = CHECKED[which]
    return text(**changes).replace(before.encode(), line.encode() + before.encode(), 1)


@pytest.mark.parametrize("which", ["host_assert", "host_raise", "static_assert"])
def test_a_size_that_the_program_refuses_is_no_finding(which):
    made = of(refusing(which, REST="TILE"))
    done = outcome(made, 2, sizes=[["LENGTH", 7]])
    assert done.findings == ()
    assert len(done.notes) == 1
    assert done.notes[0].startswith("refused by the program: ring.py:")
    assert done.verdict is Verdict.UNKNOWN
    found = hunt(Order(made, 1, plans_max=60, until=Target("exceptions")))
    assert found.finding is None
    assert 0 < found.statistics.refused.total() < 60


def test_one_that_it_takes_and_cannot_do_is_one():
    found = hunt(Order(of(text(REST="TILE")), 1, plans_max=60, until=Target("exceptions")))
    assert found.finding is not None
    assert found.outcome.plan.params.sizes != (("LENGTH", 16),)


def test_a_library_that_raises_is_no_refusal():
    before = b"    data = pld.alloc"
    broken = text().replace(
        before, b"    LENGTH % 8 and __import__('fractions').Fraction('x')\n" + before, 1
    )
    done = outcome(of(broken), 2, sizes=[["LENGTH", 7]])
    assert [one.name for one in done.findings] == ["exceptions/value_error"]


def test_a_hunt_in_which_every_plan_was_refused_proves_nothing():
    found = hunt(Order(of(refusing("world")), 1, ranks=(3, 3), plans_max=10))
    assert found.finding is None
    assert verdict_of(found) is Verdict.UNKNOWN
    assert "every plan was refused by the program: ring.py:" in reason_of(found)


def test_one_in_which_some_were_may_pass_and_says_so():
    found = hunt(Order(of(refusing("world"), "main"), 1, ranks=(2, 3), plans_max=20))
    assert verdict_of(found) is Verdict.PASS
    assert "refused by the program: ring.py:" in summary([found])
    (why, count), = plain(found)["refused"].items()
    assert why.startswith("refused by the program: ring.py:")
    assert 0 < count == found.statistics.refused.total()


def test_what_the_main_itself_is_refused_is_a_finding():
    made, = scenarios_in("ring.py", refusing("host_assert").replace(b"% 8 == 0", b"% 32 == 0"))
    assert [one.name for one in outcome(made, 2).findings] == ["exceptions/assertion_error"]
