"""The embedded KV block store: the interface of UCM's storage debugging guide, crash-safe files.

from systems.store import UcmConnectorFactory

store = UcmConnectorFactory.create_connector(
    "UcmPipelineStore", {"store_pipeline": "Cache|Posix", "storage_path": "/data/kv"}
)
task = store.dump(ids, 0, tensor)
assert store.wait(task) == 0
store.commit(ids, [True] * len(ids))
"""

from systems.store.factory import UcmConnectorFactory

__all__ = ["UcmConnectorFactory"]
