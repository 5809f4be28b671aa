"""The documented log lines, through `logging`: `[UCM.Posix] storage path P` and its kin.

The level comes from UNIFIED_CACHE_LOG_LEVEL when a store is created. A handler is added only where
the variable is set and nobody has configured logging: who asks for lines then sees them.
"""

from __future__ import annotations

import difflib
import logging
import os

LEVEL_VARIABLE = "UNIFIED_CACHE_LOG_LEVEL"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
logger = logging.getLogger("ucm")


class Marker:
    """Writes lines that begin with `[UCM.<part>]`."""

    def __init__(self, part: str) -> None:
        self._begin = f"[UCM.{part}] "

    def debug(self, text: str, *values: object) -> None:
        """A line for whoever follows each operation."""
        logger.debug(self._begin + text, *values)

    def info(self, text: str, *values: object) -> None:
        """A line for whoever follows what the store does."""
        logger.info(self._begin + text, *values)

    def warning(self, text: str, *values: object) -> None:
        """Something went wrong that the caller need not handle."""
        logger.warning(self._begin + text, *values)

    def error(self, text: str, *values: object) -> None:
        """A block failed."""
        logger.error(self._begin + text, *values)


def set_level() -> None:
    """Take the level from the environment; an unknown name is told and changes nothing."""
    asked = os.environ.get(LEVEL_VARIABLE, "").strip().upper()
    asked = {"WARN": "WARNING", "FATAL": "CRITICAL"}.get(asked, asked)
    if not asked:
        return
    if asked not in LEVELS:
        near = difflib.get_close_matches(asked, LEVELS, 1, 0.0)[0]
        logger.warning(
            "[UCM.Store] %s=%s: allowed %s; nearest: %s", LEVEL_VARIABLE, asked, ", ".join(LEVELS), near
        )
        return
    logger.setLevel(asked)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)


STORE = Marker("Store")
POSIX = Marker("Posix")
CACHE = Marker("Cache")
PIPELINE = Marker("Pipeline")
FACTORY = Marker("Factory")
