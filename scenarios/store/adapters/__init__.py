"""Any store, on a real folder, in processes of its own: a small protocol and ten black-box scenarios.

`black_box(MyStore)` makes the scenarios of an Adapter; docs/adapters.md says how to write one.
"""

from scenarios.store.adapters.adapter import Adapter
from scenarios.store.adapters.black_box import black_box

__all__ = ["Adapter", "black_box"]
