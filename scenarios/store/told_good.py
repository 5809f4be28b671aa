"""What a store did wrong with a block, as the record shows it: the cause where the client is right.

Not verified: the disk harmed the block's file in silence, and a load went on with what it read. Told good
after a failure: an operation on the block's file failed, and the call in which it lay was told
good (a lookup: that the block is not there). Lost with the power: the block's file was not durable when
the power went. Looked at: the call that a finding is about, then the dumps and commits of its block that
came before. Not modelled: failures that a store may pass over (times, clean-up, listings), interrupted
calls (repeating them is right).
"""

from __future__ import annotations

from collections.abc import Iterable

from faults import storage
from harness import Fault, Run
from scenarios.store.history import Call, History
from scenarios.store.mistakes import Mistake
from systems.store.errors import OK

REPORTED = (storage.IoError, storage.FailedFsync, storage.FailedRename)
SILENT = (
    storage.BitFlip, storage.LostWrite, storage.MisdirectedWrite, storage.StaleRead, storage.Truncation,
    storage.SwappedFiles, storage.Evicted, storage.FolderGone,
)
OF_THE_BLOCK = frozenset(
    f"disk_{one}" for one in ("open", "pread", "pwrite", "fsync", "truncate", "rename", "exists")
)


def told_good(
    run: Run, history: History, fired: Iterable[tuple[int, Fault]], call: Call, block: int
) -> Mistake | None:
    """What was passed over, or the power cut that took the block; None without either."""
    hex_id = history.id_of(block).hex()
    concerned = [
        one for one in reversed(history.calls)
        if one is call or (one.kind in ("dump", "commit") and one.began <= call.began)
    ]
    for at, fault in fired:
        event = run.events[at - 1]
        if event.kind not in OF_THE_BLOCK or hex_id not in str(event.value):
            continue
        what = f"{event.kind.removeprefix('disk_')} {event.value}"
        if isinstance(fault, SILENT) and call.kind == "load" and at < call.ended:
            return Mistake("not_verified", f"{what} met {type(fault).__name__} in silence at event {at}")
        if not isinstance(fault, REPORTED) or getattr(fault, "error", "") == "EINTR":
            continue
        rank = run.lanes[event.owner][0]
        for one in concerned:
            if one.rank == rank and one.began <= at <= one.ended and _good(one, block):
                return Mistake("told_good", f"{what} failed at event {at} in {one}, which was told good")
    gone = next((name for name in history.taken if f"/{hex_id}." in name), "")
    if gone and call.kind != "commit":
        return Mistake("not_durable", f"{gone} was not durable when the power went")
    return None


def _good(call: Call, block: int) -> bool:
    """Whether the call was told no failure of the block; a lookup: of anything."""
    if call.error or block not in call.blocks:
        return False
    at = call.blocks.index(block)
    return call.kind in ("lookup", "prefix") or call.codes[at : at + 1] == (OK,)
