"""Likely causes and remedies of what is found in stores: the checkers store, durable and linearizable."""

from __future__ import annotations

STORES: dict[str, tuple[str, str]] = {
    "store/silent_corruption": (
        "the store does not notice that a block's bytes are not those that were dumped",
        "store length, id and checksum with each block, and verify them at every load",
    ),
    "store/lost_block": (
        "the block is not found although its dump succeeded: an index in memory only, another key or "
        "path, a rename that did not happen, an eviction",
        "look for the block's file in the folder; make lookup and load follow from the files",
    ),
    "store/torn_block": (
        "a block can be seen and its data is not all there",
        "make the data durable before the block gets its name, and verify length and checksum at a load",
    ),
    "store/phantom_block": (
        "a key stands for another block, or a lookup does not look at the whole id",
        "compare the whole id, in the file too",
    ),
    "store/uncommitted_visible": (
        "readers look at data that its writer has not released yet",
        "write under a private name and rename at commit",
    ),
    "store/unexpected_error": (
        "the store refuses what it should do", "see the error's text and the store's own log"
    ),
    "store/refused_call": (
        "ids, tensor or shard of the call are not what the store allows", "see what is allowed"
    ),
    "store/collateral": (
        "one block's failure ends the batch", "keep a status a block and go on with the others"
    ),
    "store/residue": (
        "a temporary file is forgotten on one of the paths",
        "remove it where its dump ends without a commit",
    ),
    "store/over_capacity": (
        "blocks are not collected: the store does not count what it commits, or finds nothing to remove",
        "compare what the store has counted with the files' sizes when it decides whether to collect",
    ),
    "store/hang": (
        "a call never ends: a lock, a worker that is gone, or I/O without an end",
        "see the stacks; give every wait a deadline and every worker's failure to its waiters",
    ),
    "store/crash": (
        "the process died in a call", "see signal or exit code, and what it printed"
    ),
    "store/unknown_connector": (
        "the factory has no connector of that name", "compare with the names that are registered"
    ),
    "store/lookup_misses": (
        "writer and readers do not look at the same blocks",
        "compare path, ids and commits of the writer with those of the readers",
    ),
    "store/load_hangs": (
        "nobody will ever finish the load", "see what the workers do; poll check with a deadline"
    ),
    "store/misuse": (
        "the adapter's answer has a form that the protocol does not know", "see docs/adapters.md"
    ),
    "linearizable/not_linearizable": (
        "a change takes effect in steps that others can see, or is seen and then not seen again: a "
        "rename that is repeated, a cache beside the files, an answer from before the change",
        "let each change take effect at one operation (one rename), and let every reader look there",
    ),
    "durable/rename_before_fsync": (
        "the file gets its name before its data is durable: after a crash the name may stand for a part "
        "of the data, or for nothing",
        "fsync the file before the rename",
    ),
    "durable/written_after_rename": (
        "the file is still written when everybody can see it: a reader, or a crash, finds it half-way",
        "write all of it under the private name, header too, then fsync, then rename",
    ),
    "durable/folder_not_synced": (
        "a rename or a new file is durable only with its folder: the call promises more than it did",
        "fsync the folder after the rename and before the acknowledgement",
    ),
    "durable/parent_not_synced": (
        "the folder was made and its own name is not durable, so that all in it may go with it",
        "fsync the folder above whenever a folder was made",
    ),
    "durable/written_after_acknowledgement": (
        "the file changes after the call has promised it",
        "do all writing before the acknowledgement; write what comes later to a file of its own",
    ),
    "durable/removed_before_rename": (
        "the old file is removed before the new one has its name: a crash between the two loses both",
        "rename over the old file, which replaces it at once",
    ),
}
