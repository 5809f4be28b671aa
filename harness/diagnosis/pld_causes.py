"""Likely causes and remedies of the rules of PyPTO that a pld program may break (`pld/<rule>`).

Sources: reference/pypto.md 1, 2, 5.2 and 5.4; what PyPTO's compiler or its runtime refuses, what it lets
pass and gets wrong without a word, and what only another number of ranks or another order shows.
"""

from __future__ import annotations

PLD: dict[str, tuple[str, str]] = {
    "pld/byte_size": (
        "alloc_window_buffer was given a number of ranks or elements; its size counts bytes",
        "multiply by dtype.get_byte(), or pass the shape and dtype=",
    ),
    "pld/window_larger_than_buffer": (
        "the view needs more bytes than were allocated",
        "compute the buffer's size and the view's shape from the same expression",
    ),
    "pld/alloc_outside_host": (
        "a kernel allocates a window", "allocate it in the HOST function and pass its view down",
    ),
    "pld/world_size_in_kernel": (
        "a kernel asks for the world size, which only the host knows",
        "nranks(get_comm_ctx(window)) in the kernel, or pass it down as a scalar",
    ),
    "pld/host_only": (
        "a call that only HOST code may make stands in a kernel",
        "make it in the HOST function and pass its result down",
    ),
    "pld/device_only": (
        "a call of kernels stands in HOST code, where no rank runs yet",
        "move it into the kernel that is dispatched",
    ),
    "pld/not_a_window": (
        "a plain Tensor stands where peers must reach in",
        "allocate a window, and annotate the parameter pld.DistributedTensor",
    ),
    "pld/offset_rank": (
        "the number of offsets, or of extents, is not the tensor's rank",
        "give one offset for each dimension of the tensor",
    ),
    "pld/outside_tensor": (
        "offset plus extent goes past the tensor",
        "compare both with the shape; clip a last piece with valid_shape",
    ),
    "pld/not_a_member": (
        "the window belongs to other devices: those whose dispatches are given a view of its buffer",
        "pass the window only to devices of its domain, or dispatch this one with it as well",
    ),
    "pld/index_rank": (
        "more axes are indexed than the tensor has", "index at most one element or slice an axis"
    ),
    "pld/slice_step": ("a slice has a step", "slice with step 1, and loop over what is left out"),
    "pld/host_reads_tensor": (
        "HOST code is recorded before any device runs, so it cannot look at a result",
        "compute with it in a kernel, or in a sub-worker",
    ),
    "pld/wrong_alloc": (
        "a shape comes without its dtype, or a byte count with one",
        "alloc_window_buffer(bytes), or alloc_window_buffer(shape, dtype=...)",
    ),
    "pld/wrong_operand": (
        "another kind of value is due there: memory for a tile, or a tile for memory",
        "put and get move memory, remote_store a core's own value; window() takes a buffer",
    ),
    "pld/wrong_dtype": (
        "source and destination, or cell and value, differ in dtype",
        "declare both with the same dtype, or pl.cast the value; signals are INT32",
    ),
    "pld/wrong_shape": (
        "source and destination differ in rank or shape",
        "give both the same shape, or all of dst_offsets, src_offsets and shape",
    ),
    "pld/incomplete_region": (
        "a part of dst_offsets, src_offsets and shape is missing",
        "give all three, or none for the whole tensor",
    ),
    "pld/pipeline_without_chunks": (
        "pipeline=True overlaps chunks, and there are none",
        "set chunk_rows and chunk_cols, both above 0, or leave pipeline out",
    ),
    "pld/wrong_chunk": ("a chunk is no count", "chunk_rows and chunk_cols are ints, 0 for all"),
    "pld/atomic_dtype": (
        "the hardware has no atomic add for this dtype",
        "use FP32, BF16, FP16, INT32, INT16 or INT8, and cast afterwards",
    ),
    "pld/peer_outside_domain": (
        "the peer is computed outside the window's own domain: a negative remainder (device integers "
        "truncate), or a global device number where a rank of the domain is due",
        "take (rank + nranks - 1) % nranks, with rank and nranks of that window's get_comm_ctx",
    ),
    "pld/wrong_mode": ("an operation or comparison is none of its kind", "use the members of the enum"),
    "pld/tensor_after_scalar": (
        "the signature has a scalar before a tensor", "move all scalars behind the last tensor"
    ),
    "pld/dispatch_loop": (
        "the dispatch loop does not cover every card",
        "for r in pl.range(pld.world_size())",
    ),
    "pld/wrong_device": (
        "device= is neither a constant nor the variable of a pl.range loop",
        "pass the loop's own variable",
    ),
    "pld/not_shared": (
        "a host tensor lies in private memory, which the workers cannot see",
        "call share_memory_() on it before prepare()",
    ),
    "pld/world_size_not_dynamic": (
        "the world size stands as a constant in a shape",
        'use NR = pl.dynamic("NR") everywhere in the host signature',
    ),
    "pld/unbound_dynamic": (
        "no argument of the call has this dynamic extent in its declared shape",
        "use the symbol in the shape of a parameter of the function that needs it",
    ),
    "pld/several_programs": (
        "a worker with several programs cannot tell which one rt(...) means",
        "call rt.run(program, ...)",
    ),
    "pld/macro_as_environment": (
        "SIMPLER_DFX and SIMPLER_HOST_STRACE are compile-time macros; the environment changes nothing",
        "rebuild the runtime, or use RunConfig(enable_...=True); SIMPLER_DEVICE_STRACE_ENABLE is read",
    ),
    "pld/shared_buffer": (
        "two windows of the call are views of one allocation, so signals and data overwrite each other",
        "give each its own alloc_window_buffer",
    ),
    "pld/mesh_and_ring_signal": (
        "mesh counts in [rank, 0] and ring in [row, rank]: one buffer cannot serve both",
        "give each algorithm a signal of its own",
    ),
    "pld/different_domains": (
        "the windows of one collective belong to different sets of devices",
        "pass all of them to the dispatches of the same devices",
    ),
    "pld/missing_signal": (
        "only a mesh all-reduce of HOST code gets a signal of its own",
        "allocate one and pass it",
    ),
    "pld/signal_shape": (
        "the signal has not the cells that the collective counts in",
        "mesh: [NR, 1] ([world, core_num] with several cores); ring: [2 * (NR - 1), NR], one row more "
        "in HOST code",
    ),
    "pld/unsupported_collective": (
        "the collective has no such form", "see docs/pypto.md for what each form supports"
    ),
    "pld/silent_return": (
        "the kernel returns without a word, its work undone, for this number of ranks or elements",
        "stay within 16 ranks; with mode=\"ring\" make the number of elements a multiple of the ranks",
    ),
    "pld/set_on_shared_cell": (
        "several ranks Set the same cell: an arrival overwrites one that nobody has seen",
        "AtomicAdd with a wait for the sum, or a cell for each writer",
    ),
    "pld/eq_can_overshoot": (
        "more can arrive before the wait has looked, and == then never holds",
        "wait with Ge, or let the writers wait until the cell was seen",
    ),
    "pld/tag_of_zero": (
        "the tag is 0, and the wait looks for at least 1", "number tags from 1 (a cell starts at 0)"
    ),
    "pld/value_without_edge": (
        "in pl.manual_scope() only deps= orders tasks, and it does not name the one that makes the value",
        "add that task's id to deps=",
    ),
    "pld/deps": ("deps= holds something that is no task", "name the task with `as tid` and pass tid"),
    "pld/submit": (
        "pl.submit was given something that is no kernel of the program", "pass self.KERNEL first"
    ),
    "pld/spmd_deps": (
        "deps= needs a region with a name", "write `with pl.spmd(n, deps=[...]) as tid:`"
    ),
    "pld/nested_scope": ("a scope stands inside a manual one", "put them behind each other"),
    "pld/split_aiv": ("a core group has two vector cores", "pl.split_aiv(2, mode=...)"),
    "pld/lanes_differ": (
        "the vector cores of a group do not gather the same for the cube",
        "gather on both, and with pl.SplitMode.NONE the same value; or go through memory",
    ),
    "pld/predicate": (
        "predicate= is something else than one comparison of an element with a number",
        "write tensor[indices] OP number; reduce anything richer to one value in a task before",
    ),
    "pld/defer_wait": (
        "a deferred wait compares with Ge only, and a task has at most 64 of them",
        "wait for a counter that grows, with pld.WaitCmp.Ge",
    ),
    "pld/defer_wait_unsigned": (
        "a deferred wait compares unsigned numbers: one below zero counts as very large",
        "keep the counter and what is awaited at or above zero",
    ),
    "pld/too_many_tasks": ("a call makes more tasks than are simulated", "make fewer, larger tasks"),
    "pld/too_many_deferred": (
        "more tasks run or wait at the same moment than the scheduler holds", "let some end first"
    ),
    "pld/missing_yield": (
        "a round of a loop with init_values does not say what the next one goes on with",
        "end the body with pl.yield_(...) of as many values",
    ),
    "pld/yield_outside": ("pl.yield_ stands in no loop with init_values", "give the loop init_values="),
    "pld/unroll_bound": ("the compiler cannot know how often to unroll", "use pl.range"),
    "pld/pipeline_stage": ("pl.pipeline has no stage=", "pass stage=2, or as many as buffers take turns"),
    "pld/while_values": ("a while loop carries nothing", "give pl.while_ init_values="),
    "pld/static_assert": ("the program's own check of its constants fails", "look at its condition"),
    "pld/valid_shape": (
        "more of a tile is said to be valid than it has", "clip it: pl.min(width, extent - offset)"
    ),
}
