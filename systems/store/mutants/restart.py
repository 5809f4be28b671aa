"""Mutants of what outlives a process, or the power: durability, names, and how a folder is looked up."""

from __future__ import annotations

import zlib
from contextlib import suppress

from harness import mutant
from systems.store import blockfile, capacity, front, posix


@mutant(of=blockfile.Files._make_durable, expects="store/lost_block", ranks=1)
def fsync_left_out(self: blockfile.Files, fd: int) -> None:
    """A file gets its final name before its data is durable.

    Source: vLLM's RFC in issue 54363, a file tier lacks integrity. Finding: store/lost_block, after the
    power was cut. Smallest world: 1.
    """


@mutant(of=posix.PosixStage._anchor, expects="store/lost_block", ranks=1)
def folder_not_made_durable(self: posix.PosixStage, block_id: bytes) -> None:
    """The data is made durable, the name that it was given is not.

    Source: rename(2) and fsync(2). Finding: store/lost_block, after the power was cut. Smallest world:
    1.
    """


@mutant(of=posix.PosixStage._folder, expects="store/lost_block", ranks=1)
def folder_by_a_hash_of_the_process(self: posix.PosixStage, block_id: bytes) -> str:
    """A block's folder is chosen by a hash that each process seeds anew.

    Source: LMCache issues 1139 and 2136, hits are always 0 across processes. Finding: store/lost_block.
    Smallest world: 1.
    """
    return self._names[zlib.crc32(block_id, zlib.crc32(self._writer.encode())) % posix.FOLDERS]


@mutant(of=front.BlockStore._hits, expects="store/lost_block", ranks=2)
def lookup_cut_at_the_first_miss(self: front.BlockStore, ids: list[bytes]) -> list[bool]:
    """All that follows the first miss of a lookup is called a miss.

    Source: SGLang issue 26886, pages that were written are never read back. Finding: store/lost_block.
    Smallest world: 2.
    """
    there = self._prefix(ids)
    return [index < there for index in range(len(ids))]


@mutant(of=capacity.Sweep.start, expects="store/unexpected_error", ranks=2)
def residue_of_the_living_reclaimed(self: capacity.Sweep) -> None:
    """A store that begins removes all temporary files, also those that another one is writing.

    Source: LMCache issue 2273's cleanup, without an age. Finding: store/unexpected_error, a commit
    finds its file gone. Smallest world: 2.
    """
    for folder in self._listed(""):
        for name in self._listed(folder):
            if name.endswith(".tmp"):
                with suppress(OSError):
                    self._disk.unlink(self._join(folder, name))
