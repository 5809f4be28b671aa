"""The options that commands share, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        show_default=False,
        help="A scenario, FILE.py (all in it) or FILE.py::NAME; all packaged ones by default.",
    ),
]
Bug = Annotated[
    str | None, typer.Option(metavar="MUTANT", help="Plant this mutant in place of its twin.")
]
Faults = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Plant this fault in every plan. May be repeated."),
]
Each = Annotated[
    bool,
    typer.Option(
        "--each",
        help="The error loop: these faults (or all of the world's, and each crash state) at each "
        "operation in turn, once.",
    ),
]
Ranks = Annotated[str | None, typer.Option(metavar="N | N..M", help="World sizes to hunt with.")]
Minutes = Annotated[
    float | None,
    typer.Option(metavar="M", help="How long, for all targets together; 1 by default."),
]
Plans = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="At most so many plans for each target.")
]
RootSeed = Annotated[
    int | None,
    typer.Option(
        metavar="S",
        min=0,
        envvar="RANKFAULT_ROOT_SEED",
        help="All randomness follows from it; a fresh one by default.",
    ),
]
Delivery = Annotated[str, typer.Option(metavar="relaxed|eager", help="eager ignores every hold.")]
Torn = Annotated[
    int | None,
    typer.Option(
        metavar="0|4|8|64",
        help="Puts and gets take effect in pieces of so many bytes; by default tried now and then.",
    ),
]
Caches = Annotated[
    bool,
    typer.Option(
        "--caches",
        help="Cores write back whole 64-byte lines late and read old copies; else tried now and then, "
        "where the scenario says so.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="FINDING[@rank=N]",
        help="Pass over other findings. Such as deadlock@rank=3 or integrity/stale_value.",
    ),
]
Limit = Annotated[
    float | None, typer.Option(metavar="S", help="Seconds on real processes; see above.")
]
HuntFabric = Annotated[
    str,
    typer.Option(
        metavar="simulated",
        help="Hunts are simulated; real processes confirm what was found: replay --fabric processes.",
    ),
]
Out = Annotated[Path, typer.Option(metavar="PATH", help="Where the folder of each finding goes.")]
Budget = Annotated[
    float, typer.Option(metavar="S", min=0, help="Budget for shrinking a finding; 0: none.")
]
Cuda = Annotated[
    bool,
    typer.Option(
        "--with-cuda",
        help="torch.cuda.is_available() says yes to a script; its cards are CPU memory either way.",
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="scenario|torch|pld",
        help="What a FILE.py is; by default what its imports say.",
    ),
]
