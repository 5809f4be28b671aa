"""Stand-in for the first generation's factory."""

import importlib

KNOWN = {"UcmNfsStore": "ucm.store.nfsstore.nfsstore_connector"}


class UcmConnectorFactory:
    @classmethod
    def create_connector(cls, connector_name, config):
        if connector_name not in KNOWN:
            raise ValueError(f"Unknown connector: {connector_name}")
        return getattr(importlib.import_module(KNOWN[connector_name]), connector_name)(config)
