"""The test items of a pld pytest file, as pytest would number and name them, without a conftest.

    with marks_allowed(): ...                     # load the file
    for item in items_of(module): item.run()      # raises what the test raises; Skipped for a skip

PyPTO's tests take fixtures of a conftest that imports the compiler: `test_config` (`.platform`,
`.codegen_only`) and `device_ids` are supplied here, with the mark `platforms(...)`. Also understood: test
functions and methods of Test classes, parametrize (stacked, with ids and pytest.param), skip, skipif and
xfail, fixtures of the file itself that take fixtures and may yield, usefixtures, and pytest's tmp_path,
monkeypatch and caplog.

Not modelled: other plugins, conftest files, fixtures of a wider scope than their item (each item gets its
own), parametrized fixtures, indirect parametrize, setup_method and its kin. A fixture that is nowhere is
an error of the item that takes it.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.errors import UserFileError, nearest

PLATFORM = "a2a3sim"
DEVICES = (0, 1, 2, 3)
Skipped = pytest.skip.Exception
_MARKS = "pytestmark"


@dataclass(slots=True)
class Item:
    """One test: `name` is what stands behind `::` in pytest's node id, with single `::` for a class."""

    name: str
    function: Callable[..., Any]
    owner: type | None
    values: dict[str, Any]
    marks: list[Any]
    module: ModuleType
    platform: str = PLATFORM
    devices: Sequence[int] = DEVICES
    _places: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def run(self) -> None:
        """Call the test with its fixtures. Raises Skipped, UserFileError, or what the test raises."""
        self._skip()
        with contextlib.ExitStack() as self._places:
            made: dict[str, Any] = {}
            for mark in self.marks:
                if mark.name == "usefixtures":
                    for name in mark.args:
                        self._fixture(name, made)
            wanted = list(inspect.signature(self.function).parameters)[self.owner is not None :]
            given = {
                name: self.values[name] if name in self.values else self._fixture(name, made)
                for name in wanted
            }
            itself = () if self.owner is None else (self.owner(),)
            self._called(lambda: self.function(*itself, **given))

    def _called(self, body: Callable[[], Any]) -> None:
        """With what xfail says about an exception: it is expected, and counts as a skip."""
        expected = next((mark for mark in self.marks if mark.name == "xfail" and _holds(mark)), None)
        if expected is None:
            body()
            return
        try:
            body()
        except Exception as error:
            kinds = expected.kwargs.get("raises", Exception)
            if isinstance(error, kinds):
                raise Skipped(f"xfail: {expected.kwargs.get('reason', '')}") from error
            raise

    def _skip(self) -> None:
        for mark in self.marks:
            if mark.name == "skip" or (mark.name == "skipif" and _holds(mark)):
                raise Skipped(str(mark.kwargs.get("reason", mark.args[:1] or "")))
            if mark.name == "platforms" and self.platform not in mark.args:
                raise Skipped(f"for {', '.join(mark.args)}, not {self.platform}")

    def _fixture(self, name: str, made: dict[str, Any]) -> Any:
        if name not in made:
            own = getattr(self.module, name, None)
            function = _fixture_function(own)
            if function is not None:
                needs = inspect.signature(function).parameters
                value = function(**{need: self._fixture(need, made) for need in needs})
                if inspect.isgenerator(value):
                    value = self._places.enter_context(contextlib.contextmanager(lambda: value)())
                made[name] = value
            else:
                made[name] = self._supplied(name)
        return made[name]

    def _supplied(self, name: str) -> Any:
        supplied: dict[str, Callable[[], Any]] = {
            "test_config": lambda: SimpleNamespace(platform=self.platform, codegen_only=False),
            "device_ids": lambda: list(self.devices),
            "tmp_path": lambda: Path(self._places.enter_context(tempfile.TemporaryDirectory())),
            "monkeypatch": lambda: self._places.enter_context(pytest.MonkeyPatch.context()),
            "caplog": lambda: self._places.enter_context(_captured()),
        }
        if name not in supplied:
            raise UserFileError(
                f"{self.name}: the fixture {name!r} is not in the file: {nearest(name, supplied)}"
            )
        return supplied[name]()


@contextlib.contextmanager
def marks_allowed() -> Iterator[None]:
    """Marks that no configuration knows are no error and no warning, in a pytest session or outside."""
    before, pytest.mark._config = pytest.mark._config, None
    try:
        yield
    finally:
        pytest.mark._config = before


def items_of(
    module: ModuleType, *, platform: str = PLATFORM, devices: Sequence[int] = DEVICES
) -> list[Item]:
    """The items of a loaded test file, in the order of the file. Raises UserFileError."""
    found: list[Item] = []
    common = _marks_of(module)
    for name, value in list(vars(module).items()):
        if inspect.isclass(value) and name.startswith("Test") and value.__module__ == module.__name__:
            for method, function in vars(value).items():
                if method.startswith("test") and callable(function):
                    marks = [*_marks_of(function), *_marks_of(value), *common]
                    found += _items(f"{name}::{method}", function, value, marks, module)
        elif inspect.isfunction(value) and name.startswith("test"):
            found += _items(name, value, None, [*_marks_of(value), *common], module)
    for item in found:
        item.platform, item.devices = platform, devices
    return found


def _items(
    name: str, function: Callable[..., Any], owner: type | None, marks: list[Any], module: ModuleType
) -> Iterator[Item]:
    """One item, or one for each combination of its parameters: the mark nearest to it varies slowest."""
    axes = [_axis(mark, name) for mark in marks if mark.name == "parametrize"]
    others = [mark for mark in marks if mark.name != "parametrize"]
    for chosen in itertools.product(*axes):
        values = {key: value for one, _, _ in chosen for key, value in one.items()}
        own = [mark for _, _, more in chosen for mark in more]
        label = f"[{'-'.join(label for _, label, _ in chosen)}]" if chosen else ""
        yield Item(name + label, function, owner, values, [*own, *others], module)


def _axis(mark: Any, name: str) -> list[tuple[dict[str, Any], str, Sequence[Any]]]:
    """(values by argument, label, marks) of each choice of one parametrize mark."""
    arguments, choices = (*mark.args, mark.kwargs.get("argvalues"))[:2]
    if isinstance(arguments, str):
        arguments = [one.strip() for one in arguments.split(",") if one.strip()]
    ids = mark.kwargs.get("ids")
    made: list[tuple[dict[str, Any], str, Sequence[Any]]] = []
    for index, choice in enumerate(choices):
        label, more, values = None, (), choice
        if hasattr(choice, "values") and hasattr(choice, "marks"):  # pytest.param
            label, more = choice.id, choice.marks
            values = choice.values if len(arguments) > 1 else choice.values[0]
        values = list(values) if len(arguments) > 1 else [values]
        if len(values) != len(arguments):
            raise UserFileError(f"{name}: parametrize names {arguments} but gives {values}")
        if label is None and ids is not None:
            label = ids(choice) if callable(ids) else ids[index]
        if label is None:
            pairs = zip(arguments, values, strict=True)
            label = "-".join(_label(argument, value, index) for argument, value in pairs)
        made.append((dict(zip(arguments, values, strict=True)), str(label), more))
    return made


def _label(argument: str, value: Any, index: int) -> str:
    """As pytest names a value: itself if it is a word or a number, else argument and index."""
    if value is None or isinstance(value, str | int | float | bool):
        return str(value)
    named = getattr(value, "__name__", None)
    return named if isinstance(named, str) else f"{argument}{index}"


def _marks_of(holder: Any) -> list[Any]:
    """The marks of a function, class or module, the nearest first."""
    marks = getattr(holder, _MARKS, [])
    found = list(marks) if isinstance(marks, list | tuple) else [marks]
    return [getattr(one, "mark", one) for one in found]


def _holds(mark: Any) -> bool:
    """Whether the condition of a skipif or xfail mark is true; texts are not evaluated."""
    return bool(mark.args[0]) if mark.args and not isinstance(mark.args[0], str) else not mark.args


def _fixture_function(value: Any) -> Callable[..., Any] | None:
    """What `@pytest.fixture` wraps; None for anything else."""
    if type(value).__name__ != "FixtureFunctionDefinition":
        return None
    function: Callable[..., Any] = value._get_wrapped_function()
    return function


class _Log(logging.Handler):
    """pytest's caplog, of which records, messages, text and levels are here."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        """The texts of the records."""
        return [record.getMessage() for record in self.records]

    @property
    def text(self) -> str:
        """All of them, a line each."""
        return "\n".join(self.messages)

    @contextlib.contextmanager
    def at_level(self, level: int | str, logger: str | None = None) -> Iterator[None]:
        """The logger lets `level` and above through."""
        named = logging.getLogger(logger)
        before = named.level
        named.setLevel(level)
        try:
            yield
        finally:
            named.setLevel(before)


@contextlib.contextmanager
def _captured() -> Iterator[_Log]:
    """A handler of the root logger for as long as an item runs."""
    handler = _Log()
    logging.getLogger().addHandler(handler)
    try:
        yield handler
    finally:
        logging.getLogger().removeHandler(handler)
