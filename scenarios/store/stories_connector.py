"""The story *unknown connector*: the factory does not know a name.

Told apart by the names that it does know: one that is nearly the same means that the name is misspelt,
none means that nobody has registered it, as the module that would do so was never imported.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness import Scenario, SimulatedDisk, World, mutant
from scenarios.store.stories import PATH, Stories, Symptom, Workers, idle
from systems.store import UcmConnectorFactory

NAME = "PrefixStore"
MODULE = "systems.store.posix"
SAME = 0.85  # of the letters: a name that is meant


@dataclass(slots=True)
class Asked:
    """Each rank's request that failed: its text and the names that were registered."""

    failed: list[tuple[int, str, str, tuple[str, ...]]] = field(default_factory=list)

    def symptoms(self) -> Iterator[Symptom]:
        """One a rank."""
        for rank, name, text, known in self.failed:
            near = difflib.get_close_matches(name, known, 1, SAME)
            told = f"registered: {', '.join(known)}"
            found = "misspelt" if near else "never_registered"
            why = f"{name!r} and {near[0]!r} differ by little" if near else f"none is near {name!r}"
            yield Symptom(
                "unknown_connector", rank, f"rank {rank} gets no store: {text}", (told, why), found
            )


def connector_name() -> str:
    """What the client asks for."""
    return NAME


def register(factory: type[UcmConnectorFactory]) -> None:
    """What importing the module of the connector does."""
    factory.register_connector(NAME, MODULE, "UcmPosixStore")


def _host(world: World, params: object) -> Asked:
    asked = Asked()
    for rank in range(world.size):
        world.dispatch(idle, device=rank)

        class Factory(UcmConnectorFactory):
            """Of this process."""

            _registry: ClassVar[dict[str, Any]] = dict(UcmConnectorFactory._registry)

        register(Factory)
        name, workers = connector_name(), Workers()
        try:
            store = Factory.create_connector(
                name, {"storage_path": PATH}, disk=SimulatedDisk(clock=workers.time),
                executor=workers, clock=workers,
            )
        except ValueError as error:
            asked.failed.append((rank, name, str(error), tuple(sorted(Factory._registry))))
        else:
            store.close()
    return asked


@mutant(of=connector_name, expects="store/unknown_connector", ranks=1)
def misspelt() -> str:
    """A letter is missing in the name that is asked for.

    Finding: store/unknown_connector. Smallest world: 1.
    """
    return "PrefxStore"


@mutant(of=register, expects="store/unknown_connector", ranks=1)
def never_registered(factory: type[UcmConnectorFactory]) -> None:
    """The module that registers the connector is never imported.

    Finding: store/unknown_connector. Smallest world: 1.
    """


story = Scenario(
    name="store.story_unknown_connector", host=_host, ranks=(1, 4), checkers=(Stories(),),
    mutants={one.name: one for one in (misspelt, never_registered)},
    doc="Troubleshooting: the factory knows no connector of that name.",
)
