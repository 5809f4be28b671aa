"""The checker `store`: what clients were told, against what they had done.

Kinds: silent_corruption (a load told good holds other bytes), uncommitted_visible (a hit, or a load, of
what nobody had begun to commit), lost_block (a commit was acknowledged and the block is not to be had),
hang (a task had no status in time although no operation was slow), refused_call (the client's call or its
destination is wrong: the client's bug), unexpected_error (a typed error without any fault), collateral
(one failed operation, several failed blocks), residue (temporary files left behind by stores that were
closed in order, unless the power was cut), over_capacity (more is kept than the capacity and what may
be spared).

Faults excuse errors, never wrong bytes: what was reported to the store (an errno) excuses a call only
while it lies in it; what the disk did in silence (a flipped bit, a lost write) excuses every later error.
A short count excuses nothing, nor do file times that cannot be set. Not judged: a world that is blocked
(the deadlock checker's), what a dead process had begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from faults import environment, storage
from harness import Fault, Finding, Run, likely
from scenarios.store.history import FILLED, REUSED, Call, History
from scenarios.store.mistakes import Mistake, mistake
from scenarios.store.patterns import cause_of
from scenarios.store.told_good import SILENT, told_good
from systems.store.errors import BAD_PARAMETER, CANCELLED, DAMAGED, NOT_FOUND, OK, TIMEOUT

CONTINUED = (storage.ShortRead, storage.ShortWrite)  # the rest has only to be asked for
OF_ONE_FILE = (
    storage.IoError, storage.BitFlip, storage.Evicted, storage.FailedFsync, storage.LostWrite,
    storage.MisdirectedWrite, storage.StaleRead, storage.Truncation,
)
REMOVING = (storage.Evicted, storage.FolderGone)


class StoreChecker:
    """Reads the History that the host program returned as `history`."""

    name = "store"

    def check(self, run: Run) -> Iterable[Finding]:
        """At most one finding of each kind, the worst first."""
        history = run.observed.get("history") if isinstance(run.observed, dict) else None
        if not isinstance(history, History) or run.blocked:
            return ()
        return _Judge(run, history).findings()


class _Judge:
    """One run."""

    def __init__(self, run: Run, history: History) -> None:
        self.run = run
        self.history = history
        self.calls = [call for call in history.calls if call.ended >= 0]
        self.planted: list[tuple[int, Fault]] = [
            (index, run.faults[event[4]]) for index, event in enumerate(run.raw) if event[1] == "fault"
        ]
        self.fired = [(at, fault) for at, fault in self.planted if self._excuses(at, fault)]
        self.silent = min((at for at, fault in self.fired if isinstance(fault, SILENT)), default=None)
        self.slow = any(isinstance(fault, storage.SlowIo) for _, fault in self.fired)
        self.acknowledged = self._acknowledged()

    def _excuses(self, at: int, fault: Fault) -> bool:
        """Whether a store may fail for it: not where a call has only to go on, or is of no account."""
        if fault.family != "environment" or isinstance(fault, CONTINUED):
            return False
        return not (isinstance(fault, storage.IoError) and self.run.raw[at - 1][1] == "disk_utime")

    def findings(self) -> Iterator[Finding]:
        """The first finding of each kind."""
        rules: tuple[Callable[[], Iterator[Finding]], ...] = (
            self._refused, self._corrupted, self._visible, self._lost, self._hanging,
            self._unexpected, self._collateral, self._residue, self._over_capacity,
        )
        for rule in rules:
            yield from list(rule())[:1]

    def _finding(
        self, kind: str, call: Call, message: str, *, block: int = -1, because: str = ""
    ) -> Finding:
        """block: that it is about; -1: any of the call's. because: unless the record proves a cause."""
        about = call.blocks if block < 0 else (block,)
        shown = next((one for number in about if (one := self._shown(call, number))), None)
        cause, remedy = likely(f"store/{kind}", shown.because if shown else because)
        proof = (shown.text,) if shown else ()
        marks = self._marks(call)
        sites = [self.run.site(self.run.events[at]) for at in marks[:1]]
        return Finding(
            checker="store", kind=kind, rank=call.rank, message=message, sites=tuple(sites),
            evidence=(*proof, *self._told_faults()), cause=cause, remedy=remedy, events=tuple(marks),
        )

    def _shown(self, call: Call, block: int) -> Mistake | None:
        """The cause that the record proves."""
        client = mistake(self.history, call, block)
        return client or told_good(self.run, self.history, self.fired, call, block)

    def _marks(self, call: Call) -> list[int]:
        kind = f"store_{call.kind}"
        for at in range(call.began, len(self.run.raw)):
            event = self.run.raw[at]
            if event[1] == kind and event[3] == call.rank:
                return [at]
        return []

    def _told_faults(self) -> Iterator[str]:
        for at, fault in self.planted[:3]:
            before = self.run.events[at - 1]
            yield f"{fault!r} fired at event {at}, {before.kind.removeprefix('disk_')} {before.value}"

    # What was promised --------------------------------------------------------------------------------

    def _commits(self, block: int) -> Iterator[tuple[Call, int, frozenset[int]]]:
        """Calls that commit `block`, its code in each (-1: no answer), and the shards it concerns."""
        for call in self.history.calls:
            if call.kind == "commit" and block in call.blocks:
                at = call.blocks.index(block)
                if call.flags[at]:
                    shards = frozenset(
                        one.shard for one in self.history.calls
                        if one.kind == "dump" and block in one.blocks and one.began < call.began
                        and (one.rank, one.opened) == (call.rank, call.opened)
                    )
                    yield call, call.codes[at] if call.ended >= 0 else -1, shards

    def _acknowledged(self) -> dict[int, int]:
        """By block: the event from which on it is promised to everybody."""
        found = {}
        for block in {one for call in self.calls if call.kind == "commit" for one in call.blocks}:
            since: dict[int, int] = {}
            for call, code, shards in self._commits(block):
                if code == OK and call.ended >= self.history.forgotten:
                    for shard in shards:
                        since[shard] = min(since.get(shard, call.ended), call.ended)
            if len(since) == self.history.shards:
                found[block] = max(since.values())
        return found

    def _begun(self, block: int, until: int) -> bool:
        """Whether commits that may have made all shards visible began before event `until`."""
        shards: set[int] = set()
        for call, _, concerned in self._commits(block):
            if call.began < until:
                shards |= concerned
        return len(shards) >= self.history.shards

    def _own(self, call: Call, block: int) -> Call | None:
        """The call's store's last dump of the block and shard before it, if that went well."""
        found = None
        for one in self.calls:
            if (one.rank, one.opened) != (call.rank, call.opened) or one.ended > call.began:
                continue
            if block in one.blocks:
                at = one.blocks.index(block)
                if one.kind == "dump" and one.shard == call.shard:
                    found = one if one.codes[at] == OK else None
                elif one.kind == "commit" and not one.flags[at]:
                    found = None
        return found

    def _excused(self, call: Call) -> bool:
        """Whether a fault may be why this call failed."""
        if self.silent is not None and self.silent < call.ended:
            return True
        return any(call.began <= at <= call.ended for at, _ in self.fired)

    def _removed(self, call: Call) -> bool:
        """Whether a file may have been removed by somebody else."""
        return any(isinstance(fault, REMOVING) and at < call.ended for at, fault in self.fired)

    # Rules --------------------------------------------------------------------------------------------

    def _refused(self) -> Iterator[Finding]:
        for call in self.calls:
            if BAD_PARAMETER in call.codes or call.error in ("BadParameter", "AlignmentError"):
                yield self._finding("refused_call", call, f"{call} is refused: {call.text}")

    def _corrupted(self) -> Iterator[Finding]:
        for call in self.calls:
            for block, found in call.wrong.items():
                yield self._finding(
                    "silent_corruption", call,
                    f"{call}: block {block} is told good and wrong: {found.text}",
                    block=block, because="shard_left_out" if found.source.startswith(f"block {block} ")
                    else cause_of(found, poison=FILLED, reused=REUSED),
                )

    def _visible(self) -> Iterator[Finding]:
        for call in self.calls:
            for block, code in zip(call.blocks, call.codes, strict=False):
                hit = call.kind in ("lookup", "prefix") and code == 1
                got = call.kind == "load" and code == OK and not self._may_be_own(call, block)
                if (hit or got) and not self._begun(block, call.ended):
                    what = "hits" if hit else "succeeds"
                    yield self._finding(
                        "uncommitted_visible", call,
                        f"{call}: block {block} {what} and nobody had begun to commit"
                        f" {'it' if self.history.shards == 1 else 'all its shards'}", block=block,
                    )

    def _may_be_own(self, call: Call, block: int) -> bool:
        """Whether the call's store had dumped the block and not dropped it since."""
        held = False
        for one in self.history.calls:
            same = (one.rank, one.opened) == (call.rank, call.opened) and block in one.blocks
            if same and one.kind == "dump" and one.shard == call.shard and one.began < call.ended:
                held = True
            elif same and one.kind == "commit" and -1 < one.ended < call.began:
                at = one.blocks.index(block)
                dropped = not one.flags[at] and one.codes[at : at + 1] == (OK,)
                held = held and not (dropped and not self._running(one, block))
        return held

    def _running(self, call: Call, block: int) -> bool:
        """Whether a dump of the block by the same store overlaps the call."""
        return any(
            one.kind == "dump" and block in one.blocks and one.began < call.ended
            and (one.rank, one.opened) == (call.rank, call.opened) and not -1 < one.ended < call.began
            for one in self.history.calls
        )

    def _lost(self) -> Iterator[Finding]:
        for call in self.calls:
            if call.kind not in ("lookup", "prefix", "load") or call.error:
                continue
            for block, code in zip(call.blocks, call.codes, strict=False):
                since = self.acknowledged.get(block)
                if call.kind == "prefix" and (since is None or since > call.began):
                    break  # a prefix ends at the first block that is not there
                missed = code not in (OK, TIMEOUT) if call.kind == "load" else code == 0
                if since is None or since > call.began or not missed:
                    continue
                if (call.kind != "load" or code == NOT_FOUND) and self._may_be_collected(call, block):
                    continue
                if self._removed(call) or (call.kind == "load" and self._excused(call)):
                    continue
                what = f"fails with {code} ({call.text})" if call.kind == "load" else "misses"
                yield self._finding(
                    "lost_block", call,
                    f"{call}: block {block} {what}; its commit was acknowledged at event {since}",
                    block=block, because="found_damaged" if code == DAMAGED and not self.fired else "",
                )

    def _may_be_collected(self, call: Call, block: int) -> bool:
        """Whether a block may be gone for want of room: another commit came with it, or behind it."""
        commits = [one for one in self.history.calls if one.kind == "commit" and one.began < call.ended]
        since = min((one.began for one in commits if block in one.blocks), default=0)
        return self.history.evicts and any(
            one.blocks != (block,) and (one.ended < 0 or one.ended > since) for one in commits
        )

    def _hanging(self) -> Iterator[Finding]:
        for call in self.calls:
            if TIMEOUT in call.codes and not self.slow:
                yield self._finding("hang", call, f"{call}: no status within the time limit")

    def _unexpected(self) -> Iterator[Finding]:
        for call in self.calls:
            if self.fired and self.fired[0][0] < call.ended:
                continue  # what an earlier failure led to is an answer as well
            for index, block in enumerate(call.blocks or (-1,)):
                code = call.codes[index] if index < len(call.codes) else OK
                failed = bool(call.error) or (call.kind in ("dump", "load", "commit") and code != OK)
                if not failed or code in (TIMEOUT, BAD_PARAMETER, *self.history.tolerated):
                    continue
                if call.cancelled and code == CANCELLED:
                    continue
                if call.kind == "load" and not self._due(call, block):
                    continue
                told = call.text or f"status {code}"
                what = f"block {block} fails" if block >= 0 else "it fails"
                message = f"{call}: {what} without a fault: {told}"
                yield self._finding("unexpected_error", call, message, block=block)

    def _due(self, call: Call, block: int) -> bool:
        """Whether a load of the block must succeed."""
        since = self.acknowledged.get(block)
        if since is not None and since <= call.began:
            return not self.history.evicts
        return self._own(call, block) is not None

    def _collateral(self) -> Iterator[Finding]:
        single = self.run.fired == [1] and isinstance(self.run.faults[0], OF_ONE_FILE)
        for call in self.calls if single else ():
            allowed = (OK, *self.history.tolerated, *((CANCELLED,) if call.cancelled else ()))
            failed = sum(code not in allowed for code in call.codes)
            if call.kind in ("dump", "load") and failed > 1 and not call.error and self._excused(call):
                due = [b for b in call.blocks if call.kind == "dump" or self._due(call, b)]
                if len(due) == len(call.blocks) and TIMEOUT not in call.codes:
                    yield self._finding(
                        "collateral", call,
                        f"{call}: {failed} blocks fail, and one operation has failed: {call.text}",
                    )

    def _residue(self) -> Iterator[Finding]:
        opened = [call for call in self.history.calls if call.kind == "open"]
        if self.run.dead or not opened or self.history.closed != len(opened):
            return
        if self.history.cuts:  # a removal need not have been durable
            return
        for at, fault in self.fired:
            removing = self.run.raw[at - 1][1] in ("disk_unlink", "disk_listdir", "disk_stat")
            if isinstance(fault, environment.Crash) or removing:
                return
        left = [name for name in self.history.disk.tree.names() if name.endswith(".tmp")]
        if left:
            yield self._finding(
                "residue", opened[0], f"{len(left)} temporary files are left, the first is {left[0]}"
            )

    def _over_capacity(self) -> Iterator[Finding]:
        opened = [call for call in self.history.calls if call.kind == "open"]
        if not self.history.most or self.fired or self.run.dead or not opened:
            return
        disk = self.history.disk
        held = sum(disk.stat(name).size for name in disk.tree.names() if name.endswith(".kv"))
        if held > self.history.most:
            yield self._finding(
                "over_capacity", opened[0],
                f"blocks take {held} bytes at the end; capacity and what is spared: {self.history.most}",
            )
