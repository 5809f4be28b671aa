"""Stores on real folders, on workers that run at once, on a disk that fails at the n-th operation."""

import errno
import hashlib
import os

import pytest
import torch

from systems.store import UcmConnectorFactory
from systems.store.log import logger
from systems.store.real import RealDisk, RealEvent


class AtOnce:
    """An executor without threads: a job runs when it is submitted."""

    def submit(self, job):
        job()

    def close(self):
        pass

    def event(self):
        return RealEvent()


class FailingDisk(RealDisk):
    """Operation number `at` (from 1) fails with `number`, or moves half of what it was asked to.

    After "crash" every later operation fails as well.
    """

    NAMES = tuple(name for name in vars(RealDisk) if not name.startswith("_"))

    def __init__(self, at=0, how="error", number=errno.EIO, only=NAMES):
        self.at, self.how, self.number, self.only = at, how, number, only
        self.count = 0
        self.fired = ""
        self.log = []

    def strike(self, name):
        if name not in self.only:
            return False
        self.count += 1
        self.log.append(name)
        if self.at and self.count == self.at:
            self.fired = name
            return True
        return bool(self.how == "crash" and self.at and self.count > self.at)


def _operation(name):
    real = getattr(RealDisk, name)

    def operate(self, *values):
        if not self.strike(name):
            return real(self, *values)
        if self.how == "short" and name in ("pread", "pwrite"):
            fd, view, offset = values
            return real(self, fd, view[: max(1, len(view) // 2)], offset)
        if self.how == "short":
            return real(self, *values)
        if name == "close":
            real(self, *values)
        raise OSError(self.number, os.strerror(self.number))

    return operate


for _name in FailingDisk.NAMES:
    setattr(FailingDisk, _name, _operation(_name))


@pytest.fixture(autouse=True)
def own_logging():
    """The level that a test sets is gone after it."""
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers


@pytest.fixture
def failing():
    return FailingDisk


@pytest.fixture
def at_once():
    return AtOnce


@pytest.fixture
def ids():
    def make(count, salt=""):
        return [hashlib.md5(f"{salt}{number}".encode()).digest() for number in range(count)]

    return make


@pytest.fixture
def data():
    def make(*shape, seed=0, dtype=torch.float16):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

    return make


@pytest.fixture(params=["Posix", "Cache|Posix"])
def pipeline(request):
    return request.param


@pytest.fixture
def create(tmp_path, pipeline):
    """Make stores on one folder; closed at the end."""
    made = []

    def make(*, disk=None, executor=None, clock=None, path=tmp_path / "kv", **config):
        config = {"store_pipeline": pipeline, "storage_path": str(path), **config}
        store = UcmConnectorFactory.create_connector(
            "UcmPipelineStore", config, disk=disk, executor=executor, clock=clock
        )
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()
