"""Mutants that only a sequence of answers shows."""

from __future__ import annotations

from harness import mutant
from systems.store.errors import DiskFailed
from systems.store.posix import PosixStage
from systems.store.stage import Dump

CHECKS = 4  # a short while, in which somebody may look


@mutant(of=PosixStage._publish, expects="linearizable/not_linearizable", ranks=1)
def renamed_twice(self: PosixStage, dump: Dump) -> None:
    """The file gets its final name, loses it while its header is checked, and gets it for good.

    Finding: linearizable/not_linearizable. Smallest world: 1.
    """
    path = self._path(*dump.key)
    try:
        self._disk.rename(dump.path, path)
        self._disk.rename(path, dump.path)
        for _ in range(CHECKS):
            self._files.header(dump.path)
        self._disk.rename(dump.path, path)
    except OSError as error:
        raise DiskFailed.of(error, f"rename of {dump.path}") from error
    self._dumps.committed(dump, whole=self._config.shards == 1)
