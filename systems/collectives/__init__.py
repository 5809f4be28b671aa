"""The collectives' ladder: one rung a file, each built on what the rungs before it showed.

hello_rank, programming_model, window_buffer, barrier, remote_load_store, put_get,
dynamic_rank_count, allreduce_mesh, allreduce_twophase, allreduce_ring, allreduce_builtin, broadcast,
allgather, reduce_scatter, alltoall with alltoallv, together.

Beside the ladder stand small protocols that are the right forms of what went wrong in the field:
credit_barrier, dissemination, pipeline, groups, scratch, stages, domain, admission, shards, far_offsets,
channels, cache_lines.

A rung is a rank program made of small named functions (a mutant replaces exactly one of them), a
host program and a plain-torch reference. Every rung is correct under relaxed delivery for one
rank and for many, and when it is dispatched again and again with other sizes on the same windows.
"""
