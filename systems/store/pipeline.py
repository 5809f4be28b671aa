"""The pipeline connector: stages as `store_pipeline` names them, the lowest built first.

A further stage is one class in one file, an entry in LOWEST or ABOVE, and its name in the configuration's
STAGES and PIPELINES.
"""

from __future__ import annotations

from systems.store.cache import CacheStage
from systems.store.front import BlockStore
from systems.store.ports import Disk
from systems.store.posix import PosixStage
from systems.store.stage import Stage

LOWEST = {"Posix": PosixStage}
ABOVE = {"Cache": CacheStage}


class UcmPipelineStore(BlockStore):
    """`Cache|Posix` by default; all calls go to the first stage named."""

    def _build(self, disk: Disk) -> Stage:
        *above, lowest = self.stages
        stage: Stage = LOWEST[lowest](self.config, disk, self._clock)
        for name in reversed(above):
            stage = ABOVE[name](self.config, stage, self._executor)
        return stage
