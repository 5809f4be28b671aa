"""Stand-in for the second generation's factory."""

import importlib

KNOWN = {"UcmPipelineStore": "ucm.store.pipeline.connector"}


class UcmConnectorFactoryV1:
    @classmethod
    def create_connector(cls, connector_name, config, module_path=None):
        if module_path is None and connector_name not in KNOWN:
            raise ValueError(f"Unknown connector: {connector_name}")
        module = importlib.import_module(module_path or KNOWN[connector_name])
        return getattr(module, connector_name)(config)
