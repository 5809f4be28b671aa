"""Our `pypto` is importable while it is in force, and gone afterwards; a real one is left alone."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from harness.errors import UsageError
from harness.frontends.pypto import modules as made
from harness.frontends.pypto.modules import installed, is_real, modules

NAMES = (
    "pypto.language", "pypto.language.distributed", "pypto.runtime", "pypto.ir",
    "pypto.ir.distributed_compiled_program", "pypto.runtime.distributed_runner",
)


def test_they_come_and_go():
    assert not [name for name in sys.modules if name.startswith("pypto")]
    with installed():
        for name in NAMES:
            assert importlib.import_module(name) is modules()[name]
        with installed():
            pass
        assert "pypto" in sys.modules
    assert not [name for name in sys.modules if name.startswith("pypto")]


def test_what_is_not_there_says_what_and_where():
    pl = modules()["pypto.language"]
    with pytest.raises(AttributeError, match=r"test_modules\.py:\d+ in .*: pl\.gather is not simulated"):
        _ = pl.gather
    with pytest.raises(AttributeError, match=r"pld\.tensor\.teleport is not simulated"):
        _ = modules()["pypto.language.distributed"].tensor.teleport
    with pytest.raises(AttributeError, match=r"pld\.rnak is not simulated; did you mean 'rank'\?$"):
        _ = modules()["pypto.language.distributed"].rnak
    with installed(), pytest.raises(ImportError, match=r"pl\.gather is not simulated"):
        exec("from pypto.language import gather")


@pytest.fixture
def real(monkeypatch):
    module = ModuleType("pypto")
    module.__spec__ = ModuleSpec("pypto", None, origin="site/pypto/__init__.py")
    monkeypatch.setitem(sys.modules, "pypto", module)
    return module


def test_a_real_one_is_put_out_of_sight_only_when_asked(real):
    assert is_real()
    with pytest.raises(UsageError, match="say --as pld"), installed():
        pass
    with installed(asked=True):
        assert sys.modules["pypto"] is modules()["pypto"]
    assert sys.modules["pypto"] is real


def test_a_folder_of_that_name_is_no_real_one(tmp_path, monkeypatch):
    (tmp_path / "pypto").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_real()
    assert made.ROOT == "pypto"
