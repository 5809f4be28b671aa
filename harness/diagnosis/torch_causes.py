"""Likely causes and remedies of what checkers find in torch.distributed programs."""

from __future__ import annotations

_SAME_CALLS = "make every rank issue the same collectives in the same order, on every path"

TORCH: dict[str, tuple[str, str]] = {
    "torch/same_device": (
        "torch.cuda.set_device is missing or comes too late, so that cuda is card 0 on every rank; or "
        "the card is a constant",
        "call torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before anything is put on a card",
    ),
    "torch/different_collective": (
        "ranks take different branches: a condition that depends on the rank, or on data that differ",
        _SAME_CALLS,
    ),
    "torch/different_order": (
        "the order follows something that differs between ranks: a set, a dict filled in another order, "
        "the order in which work was ready",
        "sort what is iterated over by what all ranks share (a name, an index); if these are "
        "scratch buffers used in turns, nothing is wrong: take them in the same turn on every rank",
    ),
    "torch/different_reduce_op": (
        "the operation depends on the rank, or a default was left in one branch",
        "pass the same op on every rank",
    ),
    "torch/different_shape": (
        "the shape follows the rank or its share of the data (a last batch, an uneven split)",
        "pad to one size, or exchange the sizes first and use a collective that takes uneven ones",
    ),
    "torch/different_dtype": (
        "a tensor was made or converted in one branch only (autocast, a default dtype, .half())",
        "convert with .to() before the call, on every rank alike",
    ),
    "torch/different_root": (
        "the root is computed from the rank, or is a rank of the group where a global one is due",
        "compute src/dst from what all ranks share; translate with get_global_rank or pass group_src",
    ),
    "torch/different_splits": (
        "the sizes that a rank expects are not those that its peers send",
        "exchange the input splits with all_to_all_single first and use them as output splits",
    ),
    "torch/different_group": (
        "ranks made the group from different lists of ranks, or in another order",
        "call new_group on every rank, with the same list, in the same order",
    ),
    "torch/missing_collective": (
        "a rank leaves a collective out: a branch, an early return, one iteration less, an error that "
        "was swallowed",
        "make the number of collectives independent of the rank and of its data (Join, or a dummy step)",
    ),
    "torch/missing_message": (
        "one end of the message is left out, or peer or tag differ between the two",
        "compute peer and tag of both ends from the same expression",
    ),
    "torch/different_tag": (
        "sender and receiver compute the tag differently",
        "compute the tag of both ends from the same expression",
    ),
    "torch/different_message_size": (
        "sender and receiver compute the size differently; gloo aborts the receiver, or fills a part",
        "send the size first, or compute it from what both know",
    ),
    "torch/different_message_dtype": (
        "the receiver's buffer has another dtype: the bytes are taken for something else",
        "allocate the buffer with the sender's dtype",
    ),
    "torch/send_recv_cycle": (
        "every rank of the ring sends (or receives) first, and waits for the next one to do the opposite",
        "let even ranks send first and odd ones receive first, or use batch_isend_irecv",
    ),
    "torch/cycle": (
        "ranks wait for each other in different calls or groups",
        "enter groups and messages in one order on all ranks",
    ),
    "torch/unsatisfied": ("nothing left in this run can end the wait", "see who waits for whom"),
    "torch/non_member_call": (
        "every rank calls it, but the group has only some of them",
        "guard it with `if rank in ranks:`, or compare group with GroupMember.NON_GROUP_MEMBER",
    ),
    "torch/changed_in_flight": (
        "the tensor was used again before the asynchronous call on it was complete",
        "wait() on the handle before the tensor is written, or give the call a copy",
    ),
    "torch/read_in_flight": (
        "the result was read before the asynchronous call that fills it was complete",
        "wait() on the handle before the read",
    ),
    "torch/overlapping_in_flight": (
        "two calls in flight share memory: the same tensor, or views of one",
        "wait() for the first before the second is made, or give each a tensor of its own",
    ),
    "torch/dropped_handle": (
        "async_op=True, isend or irecv without a wait(): the handle was dropped",
        "keep the handle and wait() on it before the tensors are used and before the program ends",
    ),
    "torch/schedule_dependent_result": (
        "the result follows the order in which messages, completions or threads come (a recv from any "
        "rank, a tensor that two threads share)",
        "receive from named ranks, put what came in an order of your own before it is combined, or give "
        "each thread a copy",
    ),
    "exceptions/collective_mismatch": (
        "ranks made calls that do not fit each other", _SAME_CALLS,
    ),
    "exceptions/wrong_collective": (
        "the group is not this rank's, or is destroyed, or the backend cannot do what is asked of it",
        "see the error; guard calls of a group by membership, and destroy groups last",
    ),
    "exceptions/no_device": (
        "the program insists on CUDA, or wants of it what CPU memory cannot stand in for",
        "let torch.cuda.is_available() say yes (--with-cuda), do without, or use real process groups",
    ),
    "exceptions/wrong_world": (
        "RANK, WORLD_SIZE or the ranks of a group differ between processes",
        "set the environment as torchrun does; give new_group the same list on every rank",
    ),
}

# What the record shows of threads.
OF_THREADS: dict[str, tuple[str, str]] = {
    "two_threads": (
        "two threads of a rank issue collectives on one group: which of them comes first is chance, and "
        "another on each rank",
        "give the thread a group of its own (dist.new_group, made by the main thread on every rank), or "
        "issue all collectives of a group from one thread",
    ),
    "thread_raised": (
        "a thread raised an error, which ends the thread alone: what it was to do is never done",
        "catch errors in the thread and hand them over (through the queue, or a Future's result())",
    ),
    "lock_over_collective": (
        "a thread holds a lock while it waits in a collective, and what would complete it needs a lock",
        "release the lock before the collective, or let one thread make all collectives",
    ),
}
