"""What each fault of a store's client is expected to lead to, in every scenario of the store.

Scenarios of which something else holds say so beside their own declaration.
"""

from __future__ import annotations

REFUSED = "store/refused_call"
CORRUPT = "store/silent_corruption"
LOST = "store/lost_block"
FAILED = "store/unexpected_error"

MENU = {
    "duplicate_id": f"{REFUSED}|{CORRUPT}|{LOST}",
    "duplicated_dump": "equivalent: the later dump of the same data replaces the earlier one",
    "empty_ids": f"{REFUSED}|{LOST}|{FAILED}",
    "hash_seed": f"{LOST}|{FAILED}",
    "misaligned_buffer": (
        "equivalent: any address is taken; an unaligned one goes through a bounce buffer where direct "
        "I/O asks for it"
    ),
    "missing_task_wait": f"{CORRUPT}|{FAILED}|{LOST}",
    "non_contiguous_buffer": REFUSED,
    "reused_buffer": CORRUPT,
    "small_buffer": f"{CORRUPT}|{REFUSED}",
    "wrong_buffer_dtype": REFUSED,
    "wrong_device": REFUSED,
    "wrong_id_length": REFUSED,
    "wrong_shard": REFUSED,
}
