"""Started by torchrun on every rank: supervises the rank's script, and tells what became of the world.

    torchrun --nproc-per-node 4 -m harness.fabric.torchrun train.py --steps 3
    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-endpoint host0:29500 -m harness.fabric.torchrun train.py

The process that torchrun sees is the supervisor: it forks the script's process, holds its limits, and
sees how it ends. Supervisors meet in torchrun's own store, so a world of many machines needs no common
disk. Each waits until rank 0 has all outcomes and has printed the report, then ends as its rank did (a
signal as 128 + its number), so that torchrun does not end the others while they still matter.

RANKFAULT_REAL holds Orders: the faults and limits, as JSON or as the name of a file with JSON; the same
on all machines. Not modelled: one clock of several machines (bad ends count there in the order in which
they are told), elastic restarts (`--max-restarts` stays 0), launchers without torchrun's store, output
while the script runs (each rank's is passed on at its end).
"""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistStoreError

from harness.errors import RankfaultError, UsageError
from harness.fabric.real_outcome import RankOutcome, RealOutcome
from harness.fabric.real_ranks import CONNECTING, MARGIN, Watch, Watched, checked, subject
from harness.fabric.script_rank import Part, begin, decoded
from harness.plan import convert
from harness.supervise import Limits, forked

ORDERS = "RANKFAULT_REAL"
PREFIX = "rankfault"
# c10d asks for the name of every address that it connects to; a lost packet of DNS costs 5 s otherwise.
RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:1"}
LOOK_SECONDS = 0.5  # between two looks at what other machines say


class Orders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all supervisors are told. faults: as in a plan. report: a file for rank 0's RealOutcome, as
    JSON."""

    faults: tuple[dict[str, object], ...] = ()
    limits: Limits = Limits()
    backend: str = ""
    report: str = ""


def orders(text: str) -> Orders:
    """Read them from JSON, or from the file that `text` names. Raises UsageError, PlanError."""
    what = ORDERS
    if text and not text.lstrip().startswith("{"):
        what = text
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{ORDERS}: {what}: {error.strerror or error}") from None
    try:
        data = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise UsageError(f"{what}: {error}") from None
    return convert(data, Orders, what)


def main(argv: list[str]) -> int:
    """Run one rank. argv: the script and its arguments. The exit code is the rank's."""
    try:
        if not argv:
            raise UsageError("-m harness.fabric.torchrun SCRIPT [ARGUMENTS]: no script is named")
        told = orders(os.environ.get(ORDERS, ""))
        rank, size = _number("RANK"), _number("WORLD_SIZE")
        faults = decoded(told.faults, ORDERS)
        checked(argv[0], told.backend, faults, size)
        os.environ.update(RESOLVER)
        return _supervise(argv, told, rank, size)
    except RankfaultError as error:
        sys.stderr.write(f"rankfault: {error}\n")
        return 2


def _number(name: str) -> int:
    given = os.environ.get(name, "")
    if not given.isdecimal():
        raise UsageError(f"{name}: given {given!r}; a number is due: start this through torchrun")
    return int(given)


def _supervise(argv: list[str], told: Orders, rank: int, size: int) -> int:
    part = Part(
        path=argv[0], argv=tuple(argv[1:]), folder=os.getcwd(), faults=told.faults,
        limit=told.limits.operation, backend=told.backend,
    )
    value = msgspec.to_builtins(part)
    watched = Watched(rank, lambda fds: forked(lambda: begin(value, fds)))
    try:
        store = _meeting(told.limits)
        looks = [0]

        def failed_elsewhere() -> bool:
            looks[0] += 1  # a look takes TICK seconds at least
            return looks[0] % round(LOOK_SECONDS / 0.02) == 0 and store.add("bad", 0) > 0

        Watch([watched], told.limits, failed_elsewhere=failed_elsewhere).until_all_have_ended()
        own = watched.outcome()
    finally:
        watched.close()
    if own.order >= 0:
        own = msgspec.structs.replace(own, order=store.add("bad", 1) - 1)
    sys.stdout.write(own.printed)
    sys.stderr.write(own.log and own.log + "\n")
    store.set(f"outcome/{rank}", msgspec.json.encode(own).decode())
    if rank == 0:
        _report(argv[0], told, store, size)
    with contextlib.suppress(DistStoreError):  # rank 0's supervisor is gone
        store.wait(["reported"], timedelta(seconds=_patience(told.limits)))
    return own.code if own.code >= 0 else 128 - own.code


def _patience(limits: Limits) -> float:
    """How long the slowest rank may take to its end, after this one's."""
    return limits.plan + CONNECTING * limits.operation + MARGIN


def _meeting(limits: Limits) -> Store:
    """torchrun's own store, as the supervisors use it. Raises UsageError."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise UsageError("TORCHELASTIC_USE_AGENT_STORE is not True: start this through torchrun")
    host, port = os.environ.get("MASTER_ADDR", ""), _number("MASTER_PORT")
    patience = timedelta(seconds=_patience(limits))
    return PrefixStore(PREFIX, TCPStore(host, port, is_master=False, timeout=patience))


def _ordered(outcomes: list[RankOutcome]) -> list[RankOutcome]:
    """The bad ends of one machine in the order of its clock: who has seen one may have told it late."""
    bad = sorted((one for one in outcomes if one.order >= 0), key=lambda one: one.ended)
    return [
        msgspec.structs.replace(one, order=bad.index(one)) if one in bad else one for one in outcomes
    ]


def _report(path: str, told: Orders, store: Store, size: int) -> None:
    """Print what became of the world, once every rank's supervisor has told; rank 0's part."""
    outcomes = []
    for rank in range(size):
        try:
            data = store.get(f"outcome/{rank}")
        except DistStoreError:
            lost = f"limit of {_patience(told.limits):g} s for its supervisor to tell"
            outcomes.append(RankOutcome(rank=rank, code=-9, expired=lost))
            continue
        outcomes.append(msgspec.json.decode(data, type=RankOutcome))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        outcomes = _ordered(outcomes)
    outcome = RealOutcome(
        path=path, ranks=tuple(outcomes), faults=decoded(told.faults, ORDERS),
        subject=subject(told.backend),
    )
    sys.stdout.write(f"{outcome}\n")
    for finding in outcome.findings():
        sys.stdout.write(f"{finding.name}: {finding.message}\n")
    sys.stdout.flush()
    if told.report:
        Path(told.report).write_bytes(msgspec.json.encode(outcomes))
    store.set("reported", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
