"""Causes of what a store did, or its client, where the record of the calls proves it: rows of BECAUSE.

A call's record has what its program meant and what the store was given, a run's what the disk did: a row
here is chosen for a difference between them, which stands in the finding's evidence. Not modelled: two
causes at once.
"""

from __future__ import annotations

CAUSES: dict[str, tuple[str, str]] = {
    "ids_changed": (
        "the same rank passed another id for the same block than before: something in the id differs "
        "from call to call (a clock, an address, a counter), or since a restart (a hash's seed)",
        "make ids with hashlib from the tokens and the id before, and from nothing else",
    ),
    "ids_missing": (
        "the call passed fewer ids than it meant blocks: its list of ids is empty or cut short",
        "make ids and tensors from one list of blocks, and compare the lengths before the call",
    ),
    "id_of_another": (
        "the call passed another block's id: its list names one block twice, or is in another order than "
        "its tensors",
        "make ids and tensors from one list of blocks, and leave out doubles before the call",
    ),
    "id_length": (
        "an id is not 16 bytes long: a hex digest or another hash stands where md5's digest is due",
        "pass hashlib.md5(...).digest()",
    ),
    "other_shard": (
        "the call passed another shard's index than the one it meant",
        "offset is the shard index: pass the rank's own at dump and at load",
    ),
    "other_length": (
        "a tensor that was passed is not as long as the blocks it stands for",
        "compare numel() * element_size() with the blocks' bytes at dump and at load",
    ),
    "other_dtype": (
        "the block was passed with another dtype at one of dump and load than at the other",
        "use one dtype at both; .view(dtype) where only the name differs",
    ),
    "not_contiguous": (
        "the elements of the tensor that was passed do not lie one behind the other",
        "dump a copy (.contiguous()); load into a contiguous tensor and copy from there",
    ),
    "unreachable": (
        "the tensor that was passed is on a device that the store cannot reach",
        "move it to the CPU or to CUDA before the call",
    ),
    "not_waited": (
        "the client went on before its task was done: neither wait nor a check that said done stands "
        "between the call and the use of its tensor or its blocks",
        "wait(task), or poll check until it is done, before the tensor is touched and before commit",
    ),
    "found_damaged": (
        "the store finds its own block damaged although the disk did no harm: it does not read or write "
        "what it means to (an offset, a length, the rest of a short transfer)",
        "compare offset and length of each read and write of the block's file, above all of the second "
        "one after a short count",
    ),
    "shard_left_out": (
        "the bytes are another shard's of the same block: a key, a path or an offset leaves the shard "
        "out",
        "make the shard a part of every key and file name, and compare it at load",
    ),
    "not_verified": (
        "the disk harmed the block's file in silence, and the store went on with what it read",
        "store length, id, shard and checksum with each block, header included, and verify them at every "
        "load",
    ),
    "told_good": (
        "an operation on the block's file failed, and the call it belongs to was told good",
        "make every failed open, read, write, fsync and rename a failure of its call; a lookup that "
        "cannot know raises",
    ),
    "not_durable": (
        "the block's file was not durable when its commit was acknowledged, and the power took it",
        "fsync the file before it is renamed, and the folders of the new name before commit says success",
    ),
}
