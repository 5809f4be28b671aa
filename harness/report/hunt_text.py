"""The summary of hunts: what proves that they explored, and which command to try next."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.finding import Verdict
from harness.hunt import Hunt, Order, Statistics


def verdict_of(hunt: Hunt) -> Verdict:
    """FAIL with a finding; UNKNOWN when the hunt proves nothing; else PASS."""
    if hunt.finding is not None:
        return Verdict.FAIL
    statistics = hunt.statistics
    doubtful = statistics.notes or statistics.passed_over or statistics.cut_short
    if statistics.plans == statistics.refused.total() or hunt.unfired or doubtful:
        return Verdict.UNKNOWN
    return Verdict.PASS


def reason_of(hunt: Hunt) -> str:
    """Why a verdict is UNKNOWN, in one line."""
    if not hunt.statistics.plans:
        return "no plan ran"
    reasons = []
    if hunt.unfired:
        reasons.append(f"{', '.join(hunt.unfired)} never fired in {hunt.statistics.plans} plans")
    if hunt.statistics.cut_short:
        reasons.append("the limits ended it before each place was tried; give --minutes or --plans")
    if hunt.statistics.passed_over:
        others = ", ".join(f"{name} ({count})" for name, count in hunt.statistics.passed_over.items())
        reasons.append(f"--until was not met, but there were findings: {others}")
    if hunt.statistics.plans == hunt.statistics.refused.total():
        reasons.append(f"every plan was {next(iter(hunt.statistics.refused))}")
    reasons += [f"{note} ({count} times)" for note, count in hunt.statistics.notes.items()]
    return "; ".join(reasons)


def rate(statistics: Statistics) -> float:
    """Plans a second."""
    return statistics.plans / statistics.seconds if statistics.seconds else 0.0


def title(order: Order) -> str:
    """The hunted thing: scenario, mutant, faults."""
    text = order.scenario.name
    if order.bug:
        text += f" --bug {order.bug}"
    return text + "".join(f" --fault {name}" for name in order.faults)


def command(order: Order, plans: int | None = None, *, seeded: bool = True) -> str:
    """The command line that hunts the same plans again. plans: how many; seeded: the same ones."""
    words = ["rankfault", "hunt", order.scenario.name]
    argv = getattr(order.scenario.params(), "argv", ()) if order.scenario.given else ()
    if argv:
        words.append(f"--args={shlex.join(argv)}")
    if getattr(order.scenario.params(), "cuda", False) and order.scenario.given:
        words.append("--with-cuda")
    if order.bug:
        words += ["--bug", order.bug]
    for name in order.faults:
        words += ["--fault", name]
    if order.each:
        words.append("--each")
    if order.ranks:
        low, high = order.ranks
        words += ["--ranks", str(low) if low == high else f"{low}..{high}"]
    if order.delivery != "relaxed":
        words += ["--delivery", order.delivery]
    if order.torn is not None:
        words += ["--torn", str(order.torn)]
    if order.caches:
        words.append("--caches")
    if order.until.name or order.until.rank is not None:
        rank = "" if order.until.rank is None else f"@rank={order.until.rank}"
        words += ["--until", order.until.name + rank]
    if seeded:
        words += ["--root-seed", str(order.root_seed)]
    if plans is not None:
        words += ["--plans", str(plans)]
    return " ".join(shlex.quote(word) for word in words)


def shares(counts: Counter[str]) -> str:
    """`default 5 %, held 9 %`, the largest first."""
    total = sum(counts.values()) or 1
    return ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in counts.most_common())


def counted(counts: Counter[str]) -> str:
    """`late_put 12, crash 3`, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) or "none"


def summary(hunts: Sequence[Hunt], *, width: int = 80) -> str:
    """One line a hunt, then totals: plans, rate, distinct runs, faults fired, explorers."""
    names = [title(hunt.order) for hunt in hunts]
    room = min(max((len(name) for name in names), default=0), max(width - 46, 16))
    lines = [f"{'hunted'.ljust(room)}  verdict    plans  plans/s  distinct runs"]
    if width < room + 46:
        lines = [f"{'hunted'.ljust(room)}  verdict  plans"]
    for name, hunt in zip(names, hunts, strict=True):
        statistics = hunt.statistics
        row = f"{_cut(name, room).ljust(room)}  {verdict_of(hunt).name:7}"
        if width < room + 46:
            lines.append(f"{row}  {statistics.plans:5,}")
        else:
            lines.append(
                f"{row}  {statistics.plans:7,}  {rate(statistics):7,.0f}  "
                f"{len(statistics.identities):13,}"
            )
    lines.append("")
    for text in _totals(hunts):
        lines += textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(lines)


def _totals(hunts: Sequence[Hunt]) -> list[str]:
    fired: Counter[str] = Counter()
    explorers: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    plans = events = identities = 0
    seconds = 0.0
    for hunt in hunts:
        statistics = hunt.statistics
        fired += statistics.fired
        explorers += statistics.shares
        passed += statistics.passed_over
        plans += statistics.plans
        events += statistics.events
        identities += len(statistics.identities)
        seconds += statistics.seconds
    speed = plans / seconds if seconds else 0.0
    lines = [
        f"{_many(plans, 'plan')} in {seconds:.1f} s ({speed:,.0f} plans/s), "
        f"{_many(events, 'event')}, {_many(identities, 'distinct run')}",
        f"faults fired: {counted(fired)}",
        f"explorers: {shares(explorers) or 'none'}",
    ]
    refused = sum((hunt.statistics.refused for hunt in hunts), Counter[str]())
    if refused:
        first = textwrap.shorten(next(iter(refused)), 200)
        lines.append(f"{_many(refused.total(), 'plan')} {first}")
    if passed:
        lines.append(f"passed over, not what --until waits for: {counted(passed)}")
    lines += [
        f"UNKNOWN {title(hunt.order)}: {reason_of(hunt)}"
        for hunt in hunts
        if verdict_of(hunt) is Verdict.UNKNOWN
    ]
    return lines


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    return "…" + text[1 - width :] if "::" in text else text[: width - 1] + "…"  # a path tells least


def hunt_again(file: str, args: Sequence[str], kind: str | None, *, cuda: bool = False) -> str:
    """The command that hunts in what has just run, with its own arguments. kind, cuda: as asked for."""
    given = [f"--args={shlex.join(args)}"] if args else []
    return shlex.join(["rankfault", "hunt", file, *([f"--as={kind}"] if kind else []), *given,
                       *(["--with-cuda"] if cuda else [])])


def next_command(hunts: Sequence[Hunt], seed: str | None, targets: Sequence[str] = ()) -> str:
    """What to type next: replay what was found, hunt longer, or see that a planted bug is found.

    targets: as the user named them.
    """
    if seed is not None:
        return f"rankfault replay {shlex.quote(seed)}"
    unknown = [hunt for hunt in hunts if verdict_of(hunt) is Verdict.UNKNOWN]
    if unknown:
        return "rankfault list faults" if unknown[0].vacuous else f"{command(unknown[0].order)}"
    if len(hunts) != 1:
        planted = next((hunt for hunt in hunts if hunt.order.scenario.mutants), None)
        if planted is not None:
            scenario = planted.order.scenario
            return f"rankfault hunt {scenario.name} --bug {sorted(scenario.mutants)[0]}"
        return shlex.join(["rankfault", "hunt", *targets, "--minutes", "10"])
    order = hunts[0].order
    if not order.bug and not order.faults and order.scenario.mutants:
        return f"rankfault hunt {order.scenario.name} --bug {sorted(order.scenario.mutants)[0]}"
    return command(order, seeded=False) + " --minutes 10"


def plain(hunt: Hunt) -> dict[str, Any]:
    """The hunt as plain data, for --json."""
    statistics = hunt.statistics
    return {
        "scenario": hunt.order.scenario.name,
        "bug": hunt.order.bug,
        "faults": list(hunt.order.faults),
        "verdict": verdict_of(hunt).name,
        "reason": reason_of(hunt) if verdict_of(hunt) is Verdict.UNKNOWN else "",
        "plans": statistics.plans,
        "seconds": round(statistics.seconds, 3),
        "plans_per_second": round(rate(statistics), 1),
        "events": statistics.events,
        "distinct_runs": len(statistics.identities),
        "faults_fired": dict(statistics.fired),
        "explorers": dict(statistics.shares),
        "passed_over": dict(statistics.passed_over),
        "refused": dict(statistics.refused),
        "explorer": hunt.explorer or None,
    }
