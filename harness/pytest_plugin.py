"""The pytest plugin: Hypothesis profiles, root seed, seed files as tests, standstill at a timeout.

Every pytest session of an environment that has this package loads this module, so it imports
nothing of the harness (and no torch) until one of its options, ini keys or the environment variable
asks for it. Without them it changes nothing, prints nothing and leaves Hypothesis alone.

    --rankfault-profile dev|ci|nightly    ini rankfault_profile
        dev      random, with Hypothesis's local example database (unless a root seed is given),
                 100 examples
        ci       derandomised, no database, 100 examples; the root seed is 0 unless given
        nightly  random from the root seed, no database, 1,000 examples
    --rankfault-root-seed N               or RANKFAULT_ROOT_SEED; fresh otherwise
        On every xdist worker it is the controller's. The fixture `rankfault_root_seed` has it;
        Hypothesis draws from it where it is given, and in nightly.
    --rankfault-replay SEED_FILE|TOKEN    run this one plan and no other test
    ini rankfault_seeds                   seed files to run first (pytest_seeds.py)

At a pytest-timeout, of either method, the plan in flight and each rank's position come before the
stacks.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hypothesis import settings

PROFILES = ("dev", "ci", "nightly")
ROOT_SEED_VARIABLE = "RANKFAULT_ROOT_SEED"
EXAMPLES = {"dev": 100, "ci": 100, "nightly": 1000}

root_seed_key = pytest.StashKey[int]()
profile_key = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and ini keys; see the module docstring."""
    group = parser.getgroup("rankfault", "rankfault: fault injection for rank programs")
    group.addoption(
        "--rankfault-profile", choices=PROFILES, help="randomness, database and number of examples"
    )
    group.addoption(
        "--rankfault-root-seed", type=int, metavar="N", help="what all drawing follows from"
    )
    group.addoption(
        "--rankfault-replay", metavar="SEED", help="run one seed file or token and nothing else"
    )
    parser.addini("rankfault_profile", "as --rankfault-profile", default="")
    parser.addini("rankfault_seeds", "seed files to run first", "linelist", default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle profile and root seed before Hypothesis's own plugin and xdist's workers begin."""
    profile = config.getoption("rankfault_profile") or config.getini("rankfault_profile")
    if profile and profile not in PROFILES:
        raise pytest.UsageError(
            f"rankfault_profile: {profile!r}; choose one of: {', '.join(PROFILES)}"
        )
    asked = _root_seed_asked(config)
    wanted = (profile, asked is not None, *_seed_sources(config))
    if not any(wanted):
        return
    root_seed = _root_seed(asked, profile)
    config.stash[root_seed_key] = root_seed
    if profile:
        config.stash[profile_key] = profile
        _load_profile(profile)
    # Not otherwise: a forced seed switches Hypothesis's database off.
    forced = profile == "nightly" or asked is not None
    if forced and getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(root_seed)  # Hypothesis's plugin does the rest
    _report_standstill_at_timeout(config)
    if any(_seed_sources(config)):
        from harness.pytest_seeds import SeedCollection

        config.pluginmanager.register(SeedCollection(config), "rankfault-seeds")


def _seed_sources(config: pytest.Config) -> tuple[Any, Any]:
    return config.getoption("rankfault_replay"), config.getini("rankfault_seeds")


def _root_seed_asked(config: pytest.Config) -> int | None:
    """The root seed that the controller, the option or the environment gives."""
    worker = getattr(config, "workerinput", {})
    if "rankfault_root_seed" in worker:
        return int(worker["rankfault_root_seed"])
    option = config.getoption("rankfault_root_seed")
    if option is not None:
        return int(option)
    text = os.environ.get(ROOT_SEED_VARIABLE, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise pytest.UsageError(f"{ROOT_SEED_VARIABLE}: {text!r} is not a whole number") from None


def _root_seed(asked: int | None, profile: str) -> int:
    if asked is not None:
        return asked
    if profile == "ci":
        return 0
    from harness.ambient import fresh_seed

    return fresh_seed()


def hypothesis_profile(name: str) -> settings:
    """The Hypothesis settings of one profile. All that makes runs differ is set, nothing inherited.

    Hypothesis sees environment variables such as CI and would change its defaults.
    """
    from hypothesis import Phase, settings
    from hypothesis.database import DirectoryBasedExampleDatabase

    database = DirectoryBasedExampleDatabase(".hypothesis/examples") if name == "dev" else None
    return settings(
        derandomize=name == "ci", database=database, deadline=None, max_examples=EXAMPLES[name],
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=(), print_blob=name != "ci",
    )


def _load_profile(name: str) -> None:
    from hypothesis import settings

    registered = f"rankfault-{name}"
    settings.register_profile(registered, hypothesis_profile(name))
    settings.load_profile(registered)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """An xdist worker gets the controller's root seed."""
    if root_seed_key in node.config.stash:
        node.workerinput["rankfault_root_seed"] = node.config.stash[root_seed_key]


def pytest_report_header(config: pytest.Config) -> str | None:
    """The profile and the root seed."""
    if root_seed_key not in config.stash:
        return None
    profile = config.stash.get(profile_key, "none")
    return f"rankfault: root seed {config.stash[root_seed_key]}, profile {profile}"


@pytest.fixture(scope="session")
def rankfault_root_seed(pytestconfig: pytest.Config) -> int:
    """The session's root seed (0 where nothing asked for one)."""
    return pytestconfig.stash.get(root_seed_key, 0)


# At a timeout -------------------------------------------------------------------------------------


def _report_standstill_at_timeout(config: pytest.Config) -> None:
    """Put the standstill in front of the stacks that pytest-timeout writes, whatever its method."""
    import pytest_timeout

    original = pytest_timeout.dump_stacks
    if getattr(original, "rankfault", False):
        return
    worker = hasattr(config, "workerinput")

    def dump_stacks(terminal: Any) -> None:
        lines = _standstill()
        if lines and worker:  # its terminal goes nowhere, its error stream is the controller's
            print("\n".join(lines), file=sys.__stderr__, flush=True)
        elif lines:
            terminal.sep("~", title="rankfault")
            terminal.write("\n".join(lines) + "\n")
        original(terminal)

    dump_stacks.rankfault = True  # type: ignore[attr-defined]
    pytest_timeout.dump_stacks = dump_stacks


def _standstill() -> list[str]:
    """The standstill, if the harness is imported at all. Never raises: a stack dump follows."""
    if "harness.run" not in sys.modules:
        return []
    try:
        from harness.positions import standstill

        return standstill()
    except Exception as error:
        return [f"the position of the ranks cannot be told: {type(error).__name__}: {error}"]
