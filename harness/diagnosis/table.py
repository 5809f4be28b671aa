"""One table: symptom (`checker/kind`) → likely cause → remedy, as findings and the log doctor
print it.

What stands in LIKELY is likely, not proven: the proof is a finding's evidence. A row of BECAUSE is
chosen by a checker that has seen it in the record. Not modelled: causes
that need the program's source. Exceptions are looked up under the error's own name.
"""

from __future__ import annotations

from harness.diagnosis.pld_causes import PLD
from harness.diagnosis.store_causes import CAUSES
from harness.diagnosis.stores import STORES
from harness.diagnosis.torch_causes import OF_THREADS, TORCH

LIKELY: dict[str, tuple[str, str]] = {
    "integrity/wrong_value": (
        "an offset, peer, shape or summand is wrong",
        "compare the first wrong element with what each rank wrote there",
    ),
    "integrity/unwritten_memory": (
        "the bytes were read before anybody had written them",
        "order the read after the write: notify and wait, or a barrier, between them",
    ),
    "integrity/stale_value": (
        "the read was not ordered after the write, so it saw the older value",
        "fence between put and notify (or use put_signal), and wait before the read",
    ),
    "integrity/wrong_shape": (
        "the result's shape, dtype or count does not follow the world size or the arguments",
        "compute shapes from rank.size and the arguments, not from constants",
    ),
    "integrity/guard_overwritten": (
        "a base address or offset is off, so a write left its window",
        "align the view's byte offset and keep offset + size within the window",
    ),
    "integrity/stale_private_memory": (
        "the tensor was not in shared memory, so every rank worked on a private copy",
        "call share_memory_() on it before world.prepare",
    ),
    "process_group/aborted": (
        "the backend checks what its peers send by calling abort(), or a rank ran out of memory",
        "make the sizes of each call agree on all ranks; TORCH_DISTRIBUTED_DEBUG=DETAIL names some",
    ),
    "process_group/hang": (
        "a rank waits for a peer that is gone or never calls, and no time-out ends it",
        "give init_process_group and new_group a timeout, and let no rank leave a call out",
    ),
    "process_group/silence": (
        "the backend does not check that what its ranks call belongs together, nor what arrives",
        "run it simulated, where calls are compared; checksum what must not be wrong",
    ),
    "deadlock/lost_delivery": (
        "an operation was issued and never delivered",
        "look at the fault that dropped it; without one this is an engine defect",
    ),
    "deadlock/core_starvation": (
        "tasks that wait hold every core, so the task they wait for never begins",
        "pld.system.defer_wait gives the core back; or submit the publisher first, with deps= on it",
    ),
    "deadlock/cycle": (
        "each rank waits before it notifies the one that waits for it",
        "notify first, then wait",
    ),
    "deadlock/missing_notify": (
        "a notify was left out, or the awaited value is too high",
        "notify once for each arrival that is awaited, on every path",
    ),
    "deadlock/overshoot": (
        "the cell went past the value that an == wait looks for",
        "wait with >= and an epoch that grows, or reset the cell before it is reused",
    ),
    "deadlock/overdrawn": (
        "more was taken back from the cell than had been given",
        "take back what was awaited, once, on one rank",
    ),
    "deadlock/wrong_cell": (
        "a notify went to another cell or another rank than the one awaited",
        "use the same expression for the cell's index on both sides",
    ),
    "deadlock/dead_rank": (
        "the rank that should have gone on is dead",
        "let survivors end with PeerLost instead of waiting again",
    ),
    "deadlock/overwritten_signal": (
        "several arrivals share a cell, and one was overwritten before it was awaited",
        "use NotifyOp.AtomicAdd with >=, or one cell a source",
    ),
    "deadlock/missing_arrival": (
        "a rank skips a collective call that the others make",
        "make every rank reach the same collective calls in the same order",
    ),
    "lifetime/tensor_written_in_flight": (
        "the program used the tensor again before the operation on it was complete",
        "quiet before the tensor is written (put_nbi) or touched (get_nbi), or give it a copy",
    ),
    "lifetime/tensor_read_in_flight": (
        "the tensor was read before the get that fills it was complete",
        "quiet before the tensor is read",
    ),
    "deadlock/signal_leak": (
        "the call does not take back as many credits as it was given",
        "take back what was awaited, once for each arrival, on every path; or count rounds instead",
    ),
    "deadlock/unsatisfied": ("nothing left in this run can end the wait", "see the evidence"),
    "lifetime/use_after_free": (
        "the window was freed while the rank still used it", "free after the last access"
    ),
    "lifetime/freed_in_flight": (
        "the owner freed the window before its peers' operations were complete",
        "quiet on the issuing side and a barrier before free",
    ),
    "lifetime/overwritten_while_read": (
        "memory was reused while an operation in flight still read it",
        "quiet (or wait for the reader's acknowledgement) before writing it again",
    ),
    "matching/different_call": (
        "ranks take different branches, or pass different names, shapes or dtypes",
        "make every rank issue the same collective calls in the same order",
    ),
    "matching/missing_call": (
        "a rank leaves out a collective call, or loops once less",
        "make the number of calls independent of the rank",
    ),
    "progress/livelock": (
        "the polled value is never written", "write it, or use wait, which names what is missing"
    ),
    "progress/overrun": (
        "the program loops without an end, or the plan is larger than the event limit",
        "bound the loop, or shrink the parameters",
    ),
    "progress/no_scheduling_point": (
        "a loop calls no rank operation, or native code never returns",
        "poll with rank.load or wait, not on a Python variable",
    ),
    "races/unordered_read": (
        "no order stands between a write and a read of the same bytes; another schedule swaps them",
        "add the missing edge: fence (or quiet) and notify behind the first, wait before the second",
    ),
    "races/unordered_write": (
        "no order stands between two writes of the same bytes; which one stays is chance",
        "let the second writer wait for the first, or give each its own place",
    ),
    "races/source_reused": (
        "the local buffer of a put_nbi or get_nbi is in use until quiet", "quiet before touching it"
    ),
    "races/possible_erasure": (
        "a cell is set or reset while a notify to it may be on its way",
        "count on with epochs, take back with a notify of the negative amount, or use two cells in turn",
    ),
    "exceptions/out_of_bounds": (
        "an offset or a size is wrong, or a size was given in ranks where bytes are due",
        "offsets and shapes count elements; alloc(nbytes) counts bytes",
    ),
    "exceptions/wrong_dtype": ("source and destination differ in dtype", "convert with .to()"),
    "exceptions/wrong_shape": (
        "ranks ask for different sizes", "compute the shape from the arguments on every rank alike"
    ),
    "exceptions/wrong_peer": (
        "a peer is computed outside 0..size-1", "wrap with % rank.size; peers are logical ranks"
    ),
    "exceptions/wrong_handle": (
        "a window stands where a tensor is due, or the reverse",
        "copy out with rank.load, or pass the window itself",
    ),
    "exceptions/misaligned": (
        "a view's byte offset is no multiple of the element size", "round the offset up"
    ),
    "exceptions/non_contiguous": ("a strided tensor was passed", "call .contiguous() first"),
    "exceptions/dispatch_error": (
        "a dispatch breaks a rule of host programs",
        "tensors before scalars, every logical rank once a round",
    ),
    "exceptions/not_shared": (
        "a host tensor lies in private memory", "call share_memory_() before world.prepare"
    ),
    "exceptions/thread_started": (
        "a rank program starts a thread; or a script starts one that waits in the operating system "
        "(asyncio's executor, multiprocessing's pools)",
        "lanes in a rank program; threading or concurrent.futures in a script; or another fabric",
    ),
    "rendezvous/lost_write": (
        "a client takes a request that it could send for one that was done: the answer is not waited for",
        "do not rely on a set whose effect nobody has read; start a new store after a server's death",
    ),
    "rendezvous/phantom_value": (
        "a call answers with what it was given, not with what the key holds",
        "get the key after a compare_set that may have been refused",
    ),
    "rendezvous/unexpected_error": (
        "a call that was refused has closed the client's connection",
        "keep counters and texts under different keys; make a new client after an error",
    ),
    "rendezvous/hang": (
        "the call waits without its timeout: for a peer's bytes, or for the rest of a record",
        "put a deadline of your own around it, in another process or thread",
    ),
    "rendezvous/crash": (
        "native code met what it did not expect", "read the end of what the process printed"
    ),
    **STORES,
    **TORCH,
    **PLD,
    "exceptions/not_yet": ("the program uses a part that is not built", "leave it out"),
}


# Causes that a record can prove, under the names that checkers give them.
BECAUSE: dict[str, tuple[str, str]] = {
    "overtaken": (
        "the notify overtook the put that it announces: no fence stands between them",
        "rank.fence() between the put and its notify, or put_signal, which orders its own signal",
    ),
    "announced_by_another": (
        "the signal that released the reader was another put's, and says nothing about this one",
        "a cell for each put in flight, or rank.fence() before the signal that is to tell of it",
    ),
    "reset": (
        "a rank reset its own cell, and with it a signal that had come early",
        "take back what was awaited with a notify of the negative amount, or reset where no peer can "
        "signal yet",
    ),
    "data_over_signal": (
        "data was written over a cell that held a signal",
        "keep cells where no data lies, whatever the sizes of the messages",
    ),
    "shared_line": (
        "two writers share a 64-byte line: a core writes all of it back, as it was when it fetched it",
        "give every writer lines of its own (its cells 16 int32 apart), or AtomicAdd, which memory does",
    ),
    "old_copy": (
        "the core read its old copy of the line: nothing invalidated it since the write",
        "wait for the writer's notify, or invalidate the cache, between the write and the read",
    ),
    "unpublished": (
        "the store was still in the writer's cache when the reader went on",
        "publish the store (notify, fence or quiet) before the reader is told, and wait for that notify",
    ),
    "met_in_flight": (
        "the ranks met while the write was in flight: sync completes no one-sided operation",
        "quiet before the sync, or barrier, which is the two of them",
    ),
    "own_in_flight": (
        "the rank read what an operation of its own, still in flight, had to write",
        "wait for a notify that follows it, or rank.quiet() before the read",
    ),
    "get_in_flight": (
        "the landing memory of a get_nbi was read before the get was complete",
        "rank.quiet() between get_nbi and the read; a fence completes nothing",
    ),
    "in_flight": (
        "the write was in flight: nothing that the reader waited for told that it was delivered",
        "let the writer quiet (for one target a fence will do) before it tells the reader, and the "
        "reader wait for that",
    ),
    "not_begun": (
        "nothing made the reader wait until the writer had written",
        "order the read after the write: notify and wait, or a barrier, between them",
    ),
    "signal_over_data": (
        "a notify changed memory that holds data",
        "keep cells and data apart: check the notify's window and offset against what is read there",
    ),
    "own_store": (
        "the rank itself had written over what it was to read",
        "store there only after the read, or keep the two in different places",
    ),
    "two_writers": (
        "two ranks wrote the same place before the reader had read the first one's",
        "give each writer a place of its own (compare the two offsets), or let the second one wait until "
        "the reader has read",
    ),
    "reused": (
        "the memory was written again before the reader had read it",
        "let the writer wait until the reader has read (a notify back, or a barrier) before it "
        "writes there again",
    ),
    "elsewhere": (
        "the value was written to another place than it is read from: an offset, peer or base is "
        "off in one of the two",
        "compare offset, peer and base of the accesses above",
    ),
    "never_written": (
        "nobody wrote there: the write is missing, is too short or went elsewhere",
        "compare offset, extent and peer of the read with the writes to that window",
    ),
    "misspelt": (
        "the connector's name is misspelt", "use the name that the factory has registered"
    ),
    "never_registered": (
        "the module that registers the connector was never imported",
        "import it (or call register_connector) before create_connector, in this process",
    ),
    "path_absent": (
        "the storage is not there for the reader: not mounted, or not in its container; the store made "
        "an empty folder in its place",
        "mount the storage where the readers run, and check it before the store is opened",
    ),
    "other_path": (
        "writer and reader are configured with different paths",
        "give both the same storage_path on the same storage",
    ),
    "ids_differ": (
        "the ids of the same tokens differ between processes: a hash that every process seeds for itself "
        "(PYTHONHASHSEED), or something else in it that is not the same for both",
        "make ids with hashlib from the tokens and the id before, or set the same PYTHONHASHSEED for all",
    ),
    "never_committed": (
        "the blocks were dumped and never committed, so that no other process sees them",
        "commit(ids, [True, …]) when wait has said 0",
    ),
    "committed_false": (
        "the blocks were committed as failed, which drops them",
        "pass what wait said of each block: True where its dump succeeded",
    ),
    "worker_died": (
        "the worker that took the load is gone and nobody else knows of it",
        "find out how it ended (its log, its exit code); let a worker's end fail its tasks",
    ),
    "lost_task": (
        "the load is in no queue and with no worker: it was lost between submit and worker",
        "look at the queue's limit and at errors of submit that were swallowed; count both ends",
    ),
    "endless_io": (
        "a disk operation does not return: a mount whose server is gone, a device in trouble",
        "look at the mount and the device; give I/O a deadline of its own and fail the task after it",
    ),
    "partly_written": (
        "only a part of the block was written or read: a short read or write taken for a whole one, or a "
        "file that was read (or a process that was killed) in the middle of a write",
        "repeat short reads and writes until all is there, write under a private name and rename, and "
        "verify the length",
    ),
    "not_filled": (
        "nothing was read into the destination: the load said success before, or without, its data",
        "let a load succeed only when the last byte is there; wait before the destination is read",
    ),
    "misaligned": (
        "the bytes are off by less than a sector: a pointer or a length was rounded to the alignment "
        "of direct I/O, or a header's length was counted wrongly",
        "copy what is not aligned through an aligned bounce buffer, and compare both pointers % 512",
    ),
    "wrong_offset": (
        "the bytes come from another place of the file: an offset is computed from the wrong index, "
        "size or shard",
        "compare offset and size at dump and at load; store the block's length with it",
    ),
    "other_block": (
        "the bytes are another block's: one key or one buffer stands for two blocks, or files were "
        "exchanged",
        "store the id in the file and compare it at load; use no buffer again before its read is over",
    ),
    "bit_flipped": (
        "the medium or the memory changed a bit and nothing noticed",
        "store a checksum with each block and verify it at every load",
    ),
    "source_reused": (
        "the source buffer was written again before the dump had read it",
        "leave the source alone until wait (or check) says that the dump is done, or dump a copy",
    ),
    "crashed": (
        "what had been acknowledged was not durable, or not in that order, when the power went: an fsync "
        "of the file, of its folder or of the folder above is missing or comes too late",
        "see what was lost: fsync the file, rename, fsync its folder (and the one above, if it is new), "
        "and only then acknowledge",
    ),
    "task_edge": (
        "nothing orders two tasks of a device: edges follow from who writes what a task names, not from "
        "where it stands, and nobody waits for those who still read",
        "name the task in deps=, or pass both the memory as pl.InOut",
    ),
    "order": (
        "the order decides: the default run's result is another, without any fault",
        "something is read before it is there, or overwritten before it is read; --until races names it",
    ),
    "result_unwritten": (
        "no store reached the place of the result: it is missing, is too short or went elsewhere",
        "compare offset and extent of the stores to that tensor with the rank's place in it",
    ),
    "unread": (
        "the loop over peers leaves one out, or takes one twice",
        "let the loop go over all ranks, the last one included, and skip the rank's own number only",
    ),
}


BECAUSE |= CAUSES | OF_THREADS


def likely(name: str, because: str = "") -> tuple[str, str]:
    """Likely cause and remedy of `checker/kind`, or the more specific ones of `because`; empty
    texts where the table has no row."""
    return BECAUSE[because] if because else LIKELY.get(name, ("", ""))
