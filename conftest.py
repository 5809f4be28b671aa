"""The gpu and nightly markers of this repository's tests.

Profile, root seed and corpus come from the pytest plugin (harness/pytest_plugin.py), set in
pyproject.toml.
"""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip, with the reason, what was not asked for (-m) and what this machine cannot run."""
    for item in items:  # seeds of what starts slowly
        if item.path.suffix == ".json" and item.name.startswith("lmcache"):
            item.add_marker(pytest.mark.nightly)
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu and not _cuda():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; this machine has none"))
    nightly = config.getoption("rankfault_profile") == "nightly" or bool(config.option.markexpr)
    if not nightly:
        for item in items:
            if item.get_closest_marker("nightly"):
                reason = "too long for the default run: --rankfault-profile nightly or -m nightly"
                item.add_marker(pytest.mark.skip(reason=reason))


def _cuda() -> bool:
    """Whether there is a CUDA device. Imports torch: asked only for tests that need one."""
    import torch

    return torch.cuda.is_available()
