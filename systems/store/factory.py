"""The factory: connector names, each with a loader that imports its class only when asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from systems.store.config import StoreConfig
from systems.store.errors import ConfigError, UnknownConnector
from systems.store.front import BlockStore
from systems.store.log import FACTORY, set_level
from systems.store.ports import Clock, Disk, Executor

Loader = Callable[[], type[BlockStore]]


class UcmConnectorFactory:
    """Makes stores by name."""

    _registry: ClassVar[dict[str, Loader]] = {}

    @classmethod
    def register_connector(cls, name: str, module: str, class_name: str) -> None:
        """Add a connector; a name that is taken is refused."""
        if name in cls._registry:
            raise ConfigError(f"connector {name} is registered already")

        def load() -> type[BlockStore]:
            loaded: type[BlockStore] = getattr(importlib.import_module(module), class_name)
            return loaded

        cls._registry[name] = load

    @classmethod
    def create_connector(
        cls,
        connector_name: str,
        config: Mapping[str, Any] | StoreConfig,
        *,
        disk: Disk | None = None,
        executor: Executor | None = None,
        clock: Clock | None = None,
    ) -> BlockStore:
        """A store; UnknownConnector (a ValueError) names the registered ones and the nearest."""
        set_level()
        loader = cls.require_known(connector_name)
        FACTORY.info("creating connector %s", connector_name)
        return loader()(config, disk=disk, executor=executor, clock=clock)

    @classmethod
    def require_known(cls, connector_name: str) -> Loader:
        """The connector's loader, or UnknownConnector."""
        loader = cls._registry.get(connector_name) if isinstance(connector_name, str) else None
        if loader is None:
            known = {name.lower(): name for name in cls._registry}
            near = difflib.get_close_matches(str(connector_name).lower(), known, 1, 0.0)
            told = f"; nearest: {known[near[0]]}" if near else ""
            names = ", ".join(sorted(cls._registry))
            raise UnknownConnector(f"Unknown connector: {connector_name}; registered: {names}{told}")
        return loader


for _name, _module in (
    ("UcmPipelineStore", "systems.store.pipeline"),
    ("UcmPosixStore", "systems.store.posix"),
    ("UcmCacheStore", "systems.store.cache"),
):
    UcmConnectorFactory.register_connector(_name, _module, _name)
