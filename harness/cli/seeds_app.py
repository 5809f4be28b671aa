"""`rankfault seeds …`: its commands and their options, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

seeds_app = typer.Typer(help="List, show, keep and fix the seed files of the regression corpus.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout, nothing else.")]
Folder = Annotated[Path, typer.Option("--folder", help="Where the seed files are.", metavar="PATH")]
SEEDS = Path("seeds")


@seeds_app.command("list")
def seeds_list(*, folder: Folder = SEEDS, json: Json = False) -> int:
    """List the seeds with their status and finding."""
    from harness.cli.seeds import run_list

    return run_list(folder, json=json)


@seeds_app.command("show")
def seeds_show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A seed's name or file.")],
    *,
    folder: Folder = SEEDS,
) -> int:
    """Read a seed strictly and print it."""
    from harness.cli.seeds import run_show

    return run_show(name, folder)


@seeds_app.command("keep")
def seeds_keep(
    seed_file: Annotated[Path, typer.Argument(metavar="SEED_FILE", help="A finding's seed.json.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Its name from now on.", show_default=False)
    ] = None,
    *,
    folder: Folder = SEEDS,
) -> int:
    """Copy a finding's seed file into the corpus."""
    from harness.cli.seeds import run_keep

    return run_keep(seed_file, name, folder)


@seeds_app.command("fix")
def seeds_fix(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A seed's name or file.")],
    *,
    folder: Folder = SEEDS,
) -> int:
    """Mark a seed as fixed: its run must be clean, and its faults and deviations take effect."""
    from harness.cli.seeds import run_fix

    return run_fix(name, folder)
