"""A network of its own for each rank, which can be slow, lossy, cut or reset between two of them.

    with Network(2, [Cut(rank=1, call=3, milliseconds=500)]) as network:
        run_real("train.py", ranks=2, network=network)

Each rank lives in a network namespace with one device, `eth0`, and an address of its own; a hub joins
them. Namespaces have no names: each is held by a shell that ends when its input does, so that nothing is
left when the harness ends, however that ends. What happens begins just before a rank's call number
`call` and ends after so many milliseconds (0 = it stays): a long one is a partition, a short one must
heal.

Linux, and root, `ip` and `tc`; Loss and Reset need `nft` too. `unavailable()` says why it cannot be had.
Not modelled: delay and reordering of packets (they need netem), a switch that fails, IPv6.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from typing import Annotated, ClassVar

import msgspec

from harness.ambient import nap, now
from harness.errors import NotHere, UsageError

DEVICE = "eth0"
PREFIX = "10.83.0"
RANKS_MAX = 64
TRIES = 4000  # for a namespace to be there, of 5 ms each
TABLE = "inet rankfault"


class _Trouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="wire"):
    """Base: what happens to one rank's connection to all others, from its call number `call` on."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=RANKS_MAX)] = 0
    call: Annotated[int, msgspec.Meta(ge=0)] = 0
    milliseconds: Annotated[int, msgspec.Meta(ge=0)] = 0

    at_hub: ClassVar[bool] = False

    def begin(self) -> Sequence[str]:
        """The commands of its begin, in the rank's namespace or the hub's."""
        raise NotImplementedError

    def end(self) -> Sequence[str]:
        """Those of its end."""
        raise NotImplementedError


class Cut(_Trouble, frozen=True, tag="cut"):
    """The link is down: nothing arrives, and nobody is told."""

    at_hub: ClassVar[bool] = True

    def begin(self) -> Sequence[str]:
        """Pull the plug at the other end."""
        return [f"ip link set wire{self.rank} down"]

    def end(self) -> Sequence[str]:
        """Put it back."""
        return [f"ip link set wire{self.rank} up"]


class Slow(_Trouble, frozen=True, tag="slow"):
    """The link carries only so many kilobits a second."""

    kilobits: Annotated[int, msgspec.Meta(ge=8, le=10_000_000)] = 1000

    def begin(self) -> Sequence[str]:
        """A token bucket."""
        bucket = f"tbf rate {self.kilobits}kbit burst 32kbit latency 400ms"
        return [f"tc qdisc replace dev {DEVICE} root {bucket}"]

    def end(self) -> Sequence[str]:
        """Take it away."""
        return [f"tc qdisc del dev {DEVICE} root"]


class Loss(_Trouble, frozen=True, tag="loss"):
    """So many of a hundred packets that arrive are lost."""

    percent: Annotated[int, msgspec.Meta(ge=1, le=99)] = 20

    def begin(self) -> Sequence[str]:
        """Drop them by chance."""
        return _rules(f"numgen random mod 100 < {self.percent} drop")

    def end(self) -> Sequence[str]:
        """Drop no more."""
        return [f"nft delete table {TABLE}"]


class Reset(_Trouble, frozen=True, tag="reset"):
    """Whatever arrives is answered by a reset of its connection."""

    def begin(self) -> Sequence[str]:
        """Reject all."""
        return _rules("meta l4proto tcp reject with tcp reset")

    def end(self) -> Sequence[str]:
        """Reject no more."""
        return [f"nft delete table {TABLE}"]


Trouble = Cut | Slow | Loss | Reset


def _rules(rule: str) -> list[str]:
    return [
        f"nft add table {TABLE}",
        f"nft 'add chain {TABLE} wire {{ type filter hook input priority 0; }}'",
        f"nft 'add rule {TABLE} wire iifname {DEVICE} {rule}'",
    ]


class Network:
    """Namespaces for so many ranks, joined; a context manager. keepers: the processes that hold them;
    addresses: both by rank. happened: how often each of the troubles began."""

    device = DEVICE

    def __init__(self, ranks: int, troubles: Sequence[Trouble] = ()) -> None:
        if not 1 <= ranks <= RANKS_MAX:
            raise UsageError(f"network: given {ranks} ranks; allowed 1..{RANKS_MAX}")
        for index, trouble in enumerate(troubles):
            if trouble.rank >= ranks:
                raise UsageError(
                    f"network: troubles[{index}].rank: {trouble.rank} is outside 0..{ranks - 1}"
                )
        self.ranks = ranks
        self.troubles = tuple(troubles)
        self.addresses = [f"{PREFIX}.{rank + 1}" for rank in range(ranks)]
        self.keepers: list[int] = []
        self.happened = [0] * len(troubles)
        self._ends: dict[int, float] = {}

    def __enter__(self) -> Network:
        if missing := unavailable(rules=any(isinstance(one, Loss | Reset) for one in self.troubles)):
            raise NotHere(missing)
        self._open()
        return self

    def _open(self) -> None:
        with contextlib.ExitStack() as stack:
            hub = self._hub = _keeper(stack)
            self.keepers = [_keeper(stack) for _ in range(self.ranks)]
            _inside(hub, ["ip link add hub type bridge", "ip link set hub up"])
            for rank, pid in enumerate(self.keepers):
                wire = f"wire{rank}"
                _inside(hub, [
                    f"ip link add {wire} type veth peer name {DEVICE} netns {pid}",
                    f"ip link set {wire} master hub up",
                ])
                _inside(pid, [
                    "ip link set lo up", f"ip address add {self.addresses[rank]}/24 dev {DEVICE}",
                    f"ip link set {DEVICE} up",
                ])
            self._stack = stack.pop_all()

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def pauses(self, rank: int) -> tuple[int, ...]:
        """The calls, by number, before which a rank must wait for `step`."""
        return tuple(trouble.call for trouble in self.troubles if trouble.rank == rank)

    def step(self, calls: Sequence[int], waiting: Sequence[bool]) -> None:
        """The ranks have begun so many calls, and some of them wait: what is due begins, what has lasted
        long enough ends."""
        for index, trouble in enumerate(self.troubles):
            due = calls[trouble.rank] > trouble.call and waiting[trouble.rank]
            if due and not self.happened[index]:
                self._do(trouble, trouble.begin())
                self.happened[index] += 1
                if trouble.milliseconds:
                    self._ends[index] = now() + trouble.milliseconds / 1000
            elif index in self._ends and now() > self._ends[index]:
                del self._ends[index]
                self._do(trouble, trouble.end())

    def _do(self, trouble: Trouble, commands: Sequence[str]) -> None:
        _inside(self._hub if trouble.at_hub else self.keepers[trouble.rank], commands)


def _keeper(stack: contextlib.ExitStack) -> int:
    """The process id of a new namespace's holder, which ends with its input."""
    held = subprocess.Popen(
        ["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )

    def end() -> None:
        assert held.stdin is not None
        held.stdin.close()
        held.wait()

    stack.callback(end)
    ours = os.readlink("/proc/self/ns/net")
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{held.pid}/ns/net") != ours:
                return held.pid
        if held.poll() is not None:
            break
        nap(0.005)
    raise NotHere("no network namespace: unshare --net is refused here")


def _inside(pid: int, commands: Sequence[str]) -> None:
    """Run commands in a namespace. Raises NotHere with what the first that fails has printed."""
    told = subprocess.run(
        ["nsenter", "-t", str(pid), "-n", "sh", "-ec", "\n".join(commands)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )
    if told.returncode:
        text = " ".join(told.stdout.decode(errors="replace").split())
        raise NotHere(f"the network's commands fail here: {commands[0]}: {text}")


@cache
def unavailable(*, rules: bool = False) -> str:
    """Why there can be no such network here; "" if there can. rules: with Loss and Reset."""
    if os.geteuid() != 0:
        return "no network namespaces: they need root"
    needed = ("ip", "tc", "unshare", "nsenter", *(("nft",) if rules else ()))
    if lacking := [name for name in needed if shutil.which(name) is None]:
        return f"no network namespaces: {', '.join(lacking)} is not installed"
    trial = Network(1)
    try:
        trial._open()
        try:
            for trouble in (Cut(), Slow(), *((Loss(), Reset()) if rules else ())):
                trial._do(trouble, [*trouble.begin(), *trouble.end()])
        finally:
            trial._stack.close()
    except (NotHere, OSError) as error:
        return str(error)
    return ""
