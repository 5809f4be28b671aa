"""Items of a pld pytest file have pytest's names, get its fixtures, and skip when it would."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from types import ModuleType

import pytest

from harness.errors import UserFileError
from harness.frontends.pypto.pytest_items import Skipped, items_of, marks_allowed

FILE = textwrap.dedent(
    """
    import logging
    import pytest

    LOG = []

    @pytest.fixture
    def base(device_ids):
        LOG.append("begin")
        yield len(device_ids)
        LOG.append("end")

    @pytest.fixture
    def quiet(caplog, base):
        with caplog.at_level(logging.WARNING, logger="pld"):
            yield caplog

    class TestSums:
        @pytest.mark.parametrize("size", [1, 17])
        @pytest.mark.parametrize(
            "n, dtype", [(2, "fp32"), pytest.param(4, int, id="p4"), (8, object())]
        )
        def test_sum(self, test_config, base, n, dtype, size):
            LOG.append((test_config.platform, base, n, size))

        @pytest.mark.platforms("a5")
        def test_other_platform(self, device_ids):
            raise AssertionError

    @pytest.mark.skipif(True, reason="not now")
    def test_skipped():
        raise AssertionError

    @pytest.mark.xfail(reason="known")
    def test_known():
        raise AssertionError("it is")

    def test_log(quiet, monkeypatch, tmp_path):
        logging.getLogger("pld").warning("leaking")
        LOG.append(quiet.messages)
        assert tmp_path.is_dir()

    def test_asks_for_more(device_id):
        pass
    """
)


@pytest.fixture
def module():
    made = ModuleType("pld_tests")
    made.__dict__["__name__"] = "pld_tests"
    with marks_allowed():
        exec(FILE, made.__dict__)
    return made


def by_name(module, **more):
    return {item.name: item for item in items_of(module, **more)}


def test_names_are_those_of_pytest(module, tmp_path):
    (tmp_path / "test_pld.py").write_text(FILE)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p"]
    listed = subprocess.run(
        [*command, "no:rankfault", "-c", "/dev/null", "--rootdir", tmp_path, "test_pld.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    ).stdout
    theirs = [line.partition("::")[2] for line in listed.splitlines() if "::" in line]
    assert list(by_name(module)) == theirs
    assert len(theirs) == 6 + 5


def test_fixtures_of_the_file_end_after_the_item(module):
    by_name(module)["TestSums::test_sum[p4-17]"].run()
    assert module.LOG == ["begin", ("a2a3sim", 4, 4, 17), "end"]
    module.LOG.clear()
    by_name(module, devices=[5], platform="a5")["TestSums::test_sum[2-fp32-1]"].run()
    assert module.LOG == ["begin", ("a5", 1, 2, 1), "end"]


def test_a_fixture_may_take_others_and_the_log(module):
    by_name(module)["test_log"].run()
    assert module.LOG == ["begin", ["leaking"], "end"]


@pytest.mark.parametrize("name", ["test_skipped", "TestSums::test_other_platform", "test_known"])
def test_skips(module, name):
    with pytest.raises(Skipped):
        by_name(module)[name].run()


def test_a_mark_of_platforms_lets_its_own_run(module):
    with pytest.raises(AssertionError):
        by_name(module, platform="a5")["TestSums::test_other_platform"].run()


def test_a_fixture_that_is_nowhere_is_named_with_the_nearest(module):
    with pytest.raises(UserFileError, match=r"test_asks_for_more: the fixture 'device_id' .*device_ids"):
        by_name(module)["test_asks_for_more"].run()
