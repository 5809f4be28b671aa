"""What tests of the command line share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_progress(monkeypatch):
    """A busy machine makes a hunt slow enough for a line of progress; none is drawn."""
    monkeypatch.setattr("harness.cli.progress.PLAIN_SECONDS", float("inf"))


@pytest.fixture
def cli(capsys, no_progress):
    """`cli(*words)` runs the command line in process: its exit code, stdout and stderr."""
    from harness.cli import main

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(words)
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, out, err

    return call
