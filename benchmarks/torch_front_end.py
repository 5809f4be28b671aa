"""torch.distributed: scripts under simulation: what is found in five plans, alarms, start, a DDP step."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figure
from harness import Plan, registry, run
from harness.ambient import now
from harness.hunt import Order, hunt
from harness.scenario import Scenario

ROOT = Path("tests/frontends/torch_programs")
NOTHING = b"""\
import torch.distributed as dist
dist.init_process_group("gloo")
dist.destroy_process_group()
"""


def _header(path: Path, name: str) -> str:
    lines = [one for one in path.read_text().splitlines() if one.startswith(f"# {name}:")]
    return lines[0].partition(":")[2].strip() if lines else ""


def torch_programs(*, full: bool) -> list[dict[str, Any]]:
    """The defective scripts in five plans; the correct ones over 500 plans each (30 otherwise)."""
    found, first, missed = 0, 0, []
    defective = sorted((ROOT / "defective").glob("*.py"))
    for path in defective:
        ranks = int(_header(path, "ranks")[-1])
        made = hunt(Order(
            scenario=registry.script(path.as_posix()), root_seed=1, plans_max=5, ranks=(ranks, ranks)
        ))
        kind = made.finding.kind if made.finding else ""
        right = kind in _header(path, "expects").split(" or ")
        found += right
        first += right and made.statistics.plans == 1
        missed += [] if right else [path.stem]
    alarms, plans = [], 0
    for path in sorted((ROOT / "correct").glob("*.py")):
        ranks = int(_header(path, "ranks")[-1])
        made = hunt(Order(
            scenario=registry.script(path.as_posix()), root_seed=2, plans_max=500 if full else 30,
            ranks=(ranks, ranks),
        ))
        plans += made.statistics.plans
        alarms += [f"{path.stem}: {made.finding.name}"] if made.finding else []
    return [
        figure("defects found in five plans", found, f"of {len(defective)}", "all", not missed),
        figure("of these in the default run", first, f"of {len(defective)}", "", None),
        figure("false alarms", ", ".join(alarms) or 0, f"findings in {plans} plans", "0", not alarms),
    ]


def _seconds(scenario: Scenario, times: int) -> float:
    """The median of a judged run at P=4."""
    plan = Plan(scenario=scenario.name, params=scenario.params(), ranks=4)
    run(plan, scenario=scenario)
    spent = []
    for _ in range(times):
        start = now()
        run(plan, scenario=scenario)
        spent.append(now() - start)
    return median(spent)


def torch_worlds(*, full: bool) -> list[dict[str, Any]]:
    """A world that begins and ends; a training step of a two-layer model under DDP; four ranks."""
    times = 100 if full else 20
    from harness.frontends.torch_distributed.script import script_scenario

    start = _seconds(script_scenario("nothing.py", NOTHING), times)
    step = _seconds(registry.script((ROOT / "correct" / "ddp_step.py").as_posix()), times)
    return [
        figure("start and end of a world, P=4", round(start * 1000, 1), "ms", "<= 30", start <= 0.03),
        figure("a DDP step of two layers, P=4", round(1 / step, 1), "plans/s", ">= 20", step <= 0.05),
    ]
