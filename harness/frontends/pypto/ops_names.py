"""The names under which operations stand in `pl`, `pl.tile`, `pl.tensor`, `pl.array` and `pl.system`.

modules.py makes modules of these tables. A name of PyPTO's that is in none of them is not simulated; the
largest groups of those are gathers, scatters, sorts, MX matmuls and the pipes between cube and vector
cores.
"""

from __future__ import annotations

from typing import Any

from harness.frontends.pypto import ops, ops_arrays, ops_loops, ops_math, ops_tiles, tasks, vector_cores

_BOTH: dict[str, Any] = {
    "add": ops_math.add, "sub": ops_math.sub, "mul": ops_math.mul, "div": ops_math.div,
    "fmod": ops_math.fmod, "maximum": ops_math.maximum, "minimum": ops_math.minimum,
    "and_": ops_math.and_, "or_": ops_math.or_, "xor": ops_math.xor, "not_": ops_math.not_,
    "shl": ops_math.shl, "shr": ops_math.shr,
    "adds": ops_math.add, "subs": ops_math.sub, "muls": ops_math.mul, "divs": ops_math.div,
    "fmods": ops_math.fmod, "ands": ops_math.and_, "ors": ops_math.or_, "xors": ops_math.xor,
    "shls": ops_math.shl, "shrs": ops_math.shr,
    "neg": ops_math.neg, "abs": ops_math.absolute, "exp": ops_math.exp, "log": ops_math.log,
    "sin": ops_math.sin, "cos": ops_math.cos, "sqrt": ops_math.sqrt, "rsqrt": ops_math.rsqrt,
    "recip": ops_math.recip, **ops_math.REDUCTIONS, **ops_math.EXPANSIONS,
    "expands": ops_math.expands, "cmp": ops_math.cmp, "cast": ops_math.cast,
    "matmul": ops_math.matmul, "matmul_acc": ops_math.matmul_acc,
    "reinterpret_view": ops_math.reinterpret_view,
    "read": ops.read, "write": ops.write, "slice": ops.slice_, "assemble": ops.assemble,
    "reshape": ops_tiles.reshape, "transpose": ops_tiles.transpose, "concat": ops_tiles.concat,
    "fillpad": ops_tiles.fillpad,
    "fillpad_expand": ops_tiles.fillpad_expand, "set_validshape": ops_tiles.set_validshape,
    "full": ops_tiles.full,
    "ci": ops_tiles.arange, "get_block_idx": tasks.get_block_idx, "get_block_num": tasks.get_block_num,
    "get_subblock_idx": tasks.get_subblock_idx,
}

_TILE_ONLY: dict[str, Any] = {
    "load": ops.load, "store": ops.store, "move": ops_tiles.move, "cmps": ops_math.cmp,
    "sel": ops_math.sel,
    "sels": ops_math.sel, "rem": ops_math.rem, "rems": ops_math.rem, "relu": ops_math.relu,
    "lrelu": ops_math.lrelu, "maximums": ops_math.maximum, "minimums": ops_math.minimum,
    "max": ops_math.larger, "min": ops_math.smaller, "matmul_bias": ops_math.matmul_bias,
    "batch_matmul": ops_math.matmul,
}

TILE: dict[str, Any] = {
    **_BOTH, **_TILE_ONLY, "create": ops_tiles.create_tile,
    "fillpad_inplace": ops_tiles.fillpad,
}
TENSOR: dict[str, Any] = {
    **_BOTH, "create": ops.create_tensor, "dim": ops_tiles.dim, "expand_clone": ops_math.expand_clone,
    "no_dep": tasks.no_dep, "dump_tag": tasks.dump_tag,
}
ARRAY: dict[str, Any] = {
    "create": ops_arrays.array_create, "get_element": ops.read, "update_element": ops_arrays.array_update,
}
SYSTEM: dict[str, Any] = {
    "fence": tasks.fence, "cacheinvalid": tasks.cacheinvalid,
    "available_aiv_count": tasks.available_aiv_count,
    "available_cluster_count": tasks.available_cluster_count, "task_dummy": tasks.task_dummy,
}
UNIFIED: dict[str, Any] = {
    **_BOTH, **_TILE_ONLY, "create_tensor": ops.create_tensor, "create_tile": ops_tiles.create_tile,
    "dim": ops_tiles.dim, "arange": ops_tiles.arange, "expand_clone": ops_math.expand_clone,
    "const": ops_math.const, "PadValue": ops_tiles.PadValue,
    "range": ops_loops.range_, "parallel": ops_loops.parallel, "unroll": ops_loops.unroll,
    "pipeline": ops_loops.pipeline, "while_": ops_loops.while_, "cond": ops_loops.cond,
    "yield_": ops_loops.yield_, "static_print": ops_loops.static_print,
    "static_assert": ops_loops.static_assert,
    "at": tasks.at, "spmd": tasks.spmd, "split_aiv": tasks.split_aiv,
    "manual_scope": tasks.manual_scope, "scope": tasks.scope, "cluster": tasks.cluster,
    "submit": tasks.submit, "spmd_submit": tasks.spmd_submit, "no_dep": tasks.no_dep,
    "aiv_shard": vector_cores.aiv_shard, "aic_gather": vector_cores.aic_gather,
    "dump_tag": tasks.dump_tag, "split": tasks.hint, "cross_core_slot": tasks.hint,
    "RUNTIME": -1,
}
DEFER_WAIT = tasks.defer_wait  # pld.system.defer_wait
