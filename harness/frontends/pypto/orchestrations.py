"""`ir.compile` of a program without a host orchestrator and with several of chips: one is to be chosen.

    compiled["chip_add"](a, b, f)        compiled.chip_add(a, b, f)

Not modelled: their builds; `output_dir` names where they would be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.frontends.pypto.compiled import Compiled
from harness.frontends.pypto.decorators import Program
from harness.frontends.pypto.functions import Function


class Orchestration(Compiled):
    """One of several, ready to be called."""

    @property
    def name(self) -> str:
        """As it is written."""
        return self.function.name

    @property
    def param_names(self) -> list[str]:
        """Its parameters, in order."""
        return list(self.function.names)

    @property
    def output_dir(self) -> Path:
        """Where its build would be: a plain path."""
        return Path(self._output_dir)


class Orchestrations:
    """What a compiled program with several orchestrations is."""

    def __init__(self, program: Program, chips: list[Function], config: Any, folder: Path) -> None:
        self._named = program.name
        self._chips = {
            one.name: Orchestration(
                one, program.owner, config, functions=program.functions,
                output_dir=folder / "next_levels" / one.name,
            )
            for one in chips
        }

    @property
    def orchestration_names(self) -> list[str]:
        """Which there are."""
        return list(self._chips)

    def __getitem__(self, name: str) -> Orchestration:
        if name not in self._chips:
            raise KeyError(f"{self._named} has {', '.join(self._chips)}, not {name}")
        return self._chips[name]

    def __getattr__(self, name: str) -> Orchestration:
        chips = self.__dict__.get("_chips", {})
        if name not in chips:
            raise AttributeError(f"compiled program has no attribute {name!r}")
        found: Orchestration = chips[name]
        return found

    def __call__(self, *_args: Any, **_named: Any) -> Any:
        """Raises TypeError: which one is not said."""
        raise TypeError(
            f"{self._named} has the orchestrations {', '.join(self._chips)}: select one explicitly, as "
            f"in compiled[{next(iter(self._chips))!r}](...)"
        )
