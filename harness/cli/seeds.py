"""`rankfault seeds`: the regression corpus, a folder of seed files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness import corpus
from harness.cli.output import Output, complain, table, width
from harness.errors import SeedFileError, UsageError, nearest
from harness.finding import Verdict

UNKNOWN = 4


def file_of(name: str, folder: Path) -> Path:
    """The seed file called `name` in the folder, or the path itself. Raises SeedFileError."""
    given = Path(name)
    if given.suffix == ".json" and given.exists():
        return given
    path = folder / f"{name.removesuffix('.json')}.json"
    if path.exists():
        return path
    names = [file.stem for file in corpus.files(folder)]
    hint = nearest(name, names) if names else "there are none"
    raise SeedFileError(f"no seed is called {name!r} in {folder}/; {hint}")


def run_list(folder: Path, *, json: bool) -> int:
    """Every seed with its status; a broken file is one line of its own and exit code 2."""
    output = Output(json=json)
    rows: list[tuple[str, str]] = []
    data = []
    broken = []
    for path in corpus.files(folder):
        try:
            seed = corpus.read(path)
        except SeedFileError as error:
            broken.append(error)
            continue
        missing = corpus.missing(seed)
        told = f"{seed.status}: {seed.finding.identity} in {_program(seed)}"
        rows.append((path.stem, f"{told} (not run here: {missing})" if missing else told))
        data.append({"file": path.as_posix(), "missing": missing, **corpus.plain(seed)})
    if not rows and not broken:
        output.say(f"no seeds in {folder}/; keep one: rankfault seeds keep SEED_FILE NAME")
    else:
        output.say("\n".join(table(rows, width())))
    output.give(data)
    for broke in broken:
        complain(str(broke))
    return 2 if broken else 0


def _program(seed: corpus.Seed) -> str:
    bug = f" with mutant {seed.plan.bug}" if seed.plan.bug else ""
    subject = f", {seed.origin.subject}" if seed.origin.subject else ""
    return f"{seed.plan.scenario}{bug}, P={seed.plan.ranks}{subject}"


def run_show(name: str, folder: Path) -> int:
    """The seed file as it stands, after it was read strictly."""
    path = file_of(name, folder)
    seed = corpus.read(path)
    corpus.plan_of(seed, str(path))
    Output().say(corpus.encode_file(seed).decode().rstrip())
    return 0


def run_fix(name: str, folder: Path) -> int:
    """Mark a seed as fixed, if its run is clean and its faults and deviations still take effect."""
    path = file_of(name, folder)
    seed = corpus.read(path)
    output = Output()
    if seed.plan.bug is not None:
        raise UsageError(
            f"{path}: the seed of mutant {seed.plan.bug} stays open: the bug is its point"
        )
    fixed = msgspec.structs.replace(seed, status="fixed")
    result = corpus.replay(fixed, str(path))
    if result.outcome.verdict is Verdict.FAIL:
        assert result.finding is not None
        output.say(f"{path}: not fixed: it still shows {result.finding.identity}")
        return 1
    if result.problem:
        output.say(f"{path}: left {seed.status}: {result.problem}")
        return UNKNOWN
    # The fix may have changed the user's file: from now on this is the version that is clean.
    corpus.write(path, msgspec.structs.replace(fixed, scenario_digest=result.scenario.digest))
    output.say(f"{path}: fixed: the run is clean; from now on this seed must stay clean")
    return 0


def run_keep(source: Path, name: str | None, folder: Path) -> int:
    """Copy a finding's seed file into the corpus under a name of its own."""
    seed = corpus.read(source)
    corpus.plan_of(seed, str(source))
    wanted = name or seed.name
    try:
        kept = msgspec.convert(
            {**msgspec.to_builtins(seed), "name": wanted}, corpus.Seed, strict=True
        )
    except msgspec.ValidationError:
        raise UsageError(
            f"{wanted!r} is no name for a seed: letters, digits, dots, dashes and underscores"
        ) from None
    path = folder / f"{wanted}.json"
    if path.exists():
        raise UsageError(f"{path}: exists already; choose another name")
    corpus.write(path, kept)
    Output().say(f"{path}: kept; pytest runs it first with the ini key rankfault_seeds = {folder}")
    return 0
