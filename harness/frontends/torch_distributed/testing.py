"""`@distributed_test`: a test of torch.distributed code, whose ranks all run in the test's process.

    @distributed_test(ranks=(2, 4))
    def test_the_mean_is_everybodys(n: Annotated[int, Meta(ge=1, le=64)] = 4):
        x = torch.full((n,), float(dist.get_rank()))
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        assert x[0] == (dist.get_world_size() - 1) / 2

The default group exists when the function begins and is taken down after it. Each plan runs the function
in every rank, under a schedule and with a fault of its own; the test fails with the report of the first
finding, minimised. Parameters are drawn by Hypothesis, as those of a @scenario. It is hunted by
`rankfault hunt tests/test_mine.py` as well.

Not modelled: pytest fixtures as arguments; module-level state of the test's own module, which the ranks
share (modules that the function imports from its folder are each rank's own).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.distributed as dist

from harness.checkers.torch_program import TorchProgram
from harness.errors import UsageError
from harness.finding import Verdict
from harness.frontends.torch_distributed.outcome import came_to
from harness.frontends.torch_distributed.script import run_rank, variables
from harness.frontends.torch_distributed.world import Founding
from harness.host import World
from harness.hunt import hunt
from harness.plan import RANKS_MAX
from harness.portfolio import Order
from harness.report.hunt_text import reason_of, verdict_of
from harness.scenario import Scenario, params_of
from harness.strategy import failure_type, report_of

PLANS = 50


def distributed_test(
    function: Callable[..., None] | None = None, *, ranks: int | tuple[int, int] = 4,
    plans: int = PLANS, backend: str = "gloo", cuda: bool = False, minimise_seconds: float = 10.0,
) -> Any:
    """A pytest test of a function that every rank of a simulated world runs.

    ranks: the world size, or the smallest and the largest. plans: how many are tried; the same ones
    each time. backend: what init_process_group is asked for. cuda: what torch.cuda.is_available() says;
    cards are CPU memory either way. minimise_seconds: for shrinking a finding. Raises UsageError for
    ranks outside 1..64 or parameters without annotation.
    """
    if function is None:
        return functools.partial(
            distributed_test, ranks=ranks, plans=plans, backend=backend, cuda=cuda,
            minimise_seconds=minimise_seconds,
        )
    low, high = (ranks, ranks) if isinstance(ranks, int) else ranks
    if not 1 <= low <= high <= RANKS_MAX:
        raise UsageError(f"{function.__name__}: ranks={ranks!r} must lie within 1..{RANKS_MAX}")
    scenario = _scenario(function, (low, high), backend, cuda=cuda)
    seed = int(hashlib.sha256(scenario.name.encode()).hexdigest()[:8], 16)

    @functools.wraps(function)
    def test() -> None:
        order = Order(scenario=scenario, root_seed=seed, plans_max=plans)
        result = hunt(order)
        if result.outcome is not None and result.finding is not None:
            kind = failure_type(result.finding.identity)
            raise kind(report_of(scenario, result.outcome, minimise_seconds)) from None
        if verdict_of(result) is not Verdict.PASS:
            raise AssertionError(f"UNKNOWN: {reason_of(result)}")

    del test.__wrapped__  # pytest must not see the parameters
    test.scenario = scenario  # type: ignore[attr-defined]
    return test


def _scenario(
    function: Callable[..., None], ranks: tuple[int, int], backend: str, *, cuda: bool
) -> Scenario:
    path = os.path.relpath(inspect.getfile(function))
    params = params_of(function, skipped=0)
    names = params.__struct_fields__

    def host(world: World, given: Any) -> None:
        founding = Founding()
        values = {name: getattr(given, name) for name in names}

        def program(main: ModuleType) -> None:
            dist.init_process_group(backend)
            try:
                function(**values)
            finally:
                if dist.is_initialized():
                    dist.destroy_process_group()

        for index in range(world.size):
            world.dispatch(
                functools.partial(run_rank, program, path, variables), founding, (), cuda,
                device=index,
            )

    name = function.__name__ if path.startswith("..") else f"{path}::{function.__name__}"
    return Scenario(
        name=name, host=host, params=params, ranks=ranks, threads=True,
        checkers=(TorchProgram(),), comes_to=came_to,
        doc=inspect.getdoc(function) or "",
    )
