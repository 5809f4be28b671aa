"""The commands and their options, as typer reads them; what they do is in the modules beside."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.options import (
    Budget,
    Bug,
    Caches,
    Cuda,
    Delivery,
    Each,
    Faults,
    HuntFabric,
    Kind,
    Limit,
    Minutes,
    Out,
    Plans,
    Ranks,
    RootSeed,
    Targets,
    Torn,
    Until,
)
from harness.cli.seeds_app import Json, seeds_app

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(seeds_app, name="seeds")

EPILOG = (
    "Exit codes: 0 nothing found, 1 findings, 2 wrong usage, 3 internal error, 4 UNKNOWN, "
    "130 stopped with Ctrl-C."
)


FINDINGS = Path("rankfault-findings")


@app.callback(invoke_without_command=True, epilog=EPILOG)
def rankfault(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show an internal error's traceback.")
    ] = False,
) -> Any:
    """Find the rank bug: hunt it, explain it, shrink it, replay it, keep it.

    Begin with `rankfault hunt`, which hunts all packaged scenarios for a minute. Then plant a bug,
    `rankfault hunt collectives.allreduce_mesh --bug missing_barrier`, or hunt in a file of your
    own, `rankfault hunt ring.py`.
    """
    if version:
        from harness.corpus import tool_version

        typer.echo(f"rankfault {tool_version()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command(epilog=EPILOG)
def hunt(
    targets: Targets = None,
    *,
    kind: Kind = None,
    args: Annotated[
        str, typer.Option(metavar="TEXT", help="Arguments of the script, as a shell would split them.")
    ] = "",
    with_cuda: Cuda = False,
    bug: Bug = None,
    fault: Faults = None,
    each: Each = False,
    ranks: Ranks = None,
    minutes: Minutes = None,
    plans: Plans = None,
    root_seed: RootSeed = None,
    delivery: Delivery = "relaxed",
    torn: Torn = None,
    caches: Caches = False,
    until: Until = None,
    fabric: HuntFabric = "simulated",
    json: Json = False,
    out: Out = FINDINGS,
    minimise_seconds: Budget = 20.0,
) -> int:
    """Hunt until a finding, or until the time is up.

    Parameters and world sizes are drawn by Hypothesis, schedules by a portfolio of explorers that
    starts with the default run. Without --bug and --fault only what the world does to a correct
    program is tried (late deliveries, slow ranks, crashes), so correct programs end with exit
    code 0. A finding is minimised, reported and kept in a folder with its seed file.
    """
    from harness.cli.hunting import Wanted, run_hunt
    from harness.errors import UsageError

    if fabric != "simulated":
        raise UsageError(
            f"--fabric {fabric}: hunts run on the simulated fabric only; confirm what one has found on "
            "real processes with `rankfault replay SEED --fabric processes`"
        )
    return run_hunt(
        Wanted(
            targets=tuple(targets or ()),
            kind=kind,
            argv=tuple(shlex.split(args)),
            cuda=with_cuda,
            bug=bug,
            faults=tuple(fault or ()),
            each=each,
            ranks=ranks,
            minutes=minutes,
            plans=plans,
            root_seed=root_seed,
            delivery=delivery,
            torn=torn,
            caches=caches,
            until=until,
            json=json,
            out=out,
            minimise_seconds=minimise_seconds,
        )
    )


@app.command(
    epilog=EPILOG,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
def run(
    file: Annotated[str, typer.Argument(metavar="FILE.py", help="The program, as it is.")],
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="Its own arguments.", show_default=False),
    ] = None,
    *,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="World size; the program's own, or 4.")
    ] = None,
    kind: Kind = None,
    with_cuda: Cuda = False,
    fabric: Annotated[
        str,
        typer.Option(
            metavar="simulated|processes", help="processes: a script's ranks are real, on gloo or NCCL."
        ),
    ] = "simulated",
    operation_limit: Limit = None,
    plan_limit: Limit = None,
    json: Json = False,
) -> int:
    """Run a program once on the simulated fabric, in the default schedule, and judge it.

    A torch.distributed script runs with all its ranks in this process. Arguments that this
    command does not know are the program's; whatever follows `--` is, too.
    """
    from harness.cli.running import run_file, run_on_processes
    from harness.errors import UsageError

    if fabric == "simulated":
        return run_file(
            file, tuple(args or ()), ranks=ranks, kind=kind, json=json, cuda=with_cuda
        )
    if with_cuda:
        raise UsageError("--with-cuda: real processes see the CUDA devices of this machine")
    limits = _limits(operation=operation_limit, plan=plan_limit)
    return run_on_processes(
        file, tuple(args or ()), ranks=ranks, kind=kind, fabric=fabric, limits=limits, json=json
    )


def _limits(**given: float | None) -> Any:
    from harness.supervise import Limits

    chosen = {name: seconds for name, seconds in given.items() if seconds is not None}
    return Limits(**chosen) if chosen else None


@app.command(epilog="Exit codes: 0 not reproduced, 1 reproduced, 2 wrong usage, 4 UNKNOWN.")
def replay(
    seed: Annotated[
        str, typer.Argument(metavar="SEED", help="A seed file, its name in seeds/, or a token.")
    ],
    *,
    fabric: Annotated[
        str,
        typer.Option(
            metavar="simulated|processes",
            help="Where the ranks run; processes: does it show there what was simulated?",
        ),
    ] = "simulated",
    times: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Run it so often; simulated runs must be the same."),
    ] = 1,
    start: Annotated[
        str,
        typer.Option(metavar="fork|spawn|forkserver", help="How the processes of the ranks begin."),
    ] = "fork",
    operation_limit: Limit = None,
    plan_limit: Limit = None,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """Run a seed again and report what it shows.

    The limits are seconds on real processes, after which a rank is killed and said to stand still:
    of one operation (10), of one run (60), and of all runs together (none).
    """
    from harness.cli.replaying import run_replay

    limits = _limits(operation=operation_limit, plan=plan_limit, hunt=limit)
    return run_replay(seed, fabric=fabric, times=times, json=json, limits=limits, start=start)


@app.command(epilog="Exit codes: as replay.")
def explain(
    seed: Annotated[
        str, typer.Argument(metavar="SEED", help="A seed file, its name in seeds/, or a token.")
    ],
) -> int:
    """Run a seed again and report it with every event of the run."""
    from harness.cli.replaying import run_explain

    return run_explain(seed, fabric="simulated")


@app.command("list")
def list_names(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="scenarios, mutants, faults or checkers.")
    ],
    *,
    json: Json = False,
) -> int:
    """List what can be named on the command line."""
    from harness.cli.listing import run_list

    return run_list(what, json=json)


@app.command(
    epilog="Exit codes: 0 all caught, 1 survivors, false alarms or wrong declarations, 2 wrong usage, "
    "3 internal error, 4 UNKNOWN, 130 stopped with Ctrl-C."
)
def matrix(
    targets: Targets = None,
    *,
    root_seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Hunt each with so many root seeds.")
    ] = 3,
    root_seed: Annotated[
        int, typer.Option(metavar="S", min=0, help="The first of the root seeds.")
    ] = 0,
    plans: Annotated[
        int, typer.Option(metavar="N", min=1, help="At most so many plans in a hunt.")
    ] = 100,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Processes; as many as there are cores by default.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write the matrix as a page, too.")
    ] = None,
) -> int:
    """The detection matrix: is every planted bug caught, and nothing else?

    Runs every mutant and every declared bug fault of the targets: which checker catches it, after
    how many plans, in how small a world. Declared equivalents and the correct systems must show
    nothing. What is wrong is printed first. The same options give the same rows.
    """
    from harness.cli.matrix import WantedMatrix, run_matrix

    return run_matrix(
        WantedMatrix(
            targets=tuple(targets or ()),
            root_seeds=root_seeds,
            root_seed=root_seed,
            plans=plans,
            jobs=jobs,
            json=json,
            html=html,
        )
    )


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Which figures; all by default.", show_default=False),
    ] = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="The long tier instead of the quick one.")
    ] = False,
    path: Annotated[
        Path | None, typer.Option(metavar="PATH", help="store: a folder on the disk to measure.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="STAGES", help="store: 'Posix' or 'Cache|Posix'.")
    ] = None,
    direct: Annotated[bool, typer.Option("--direct", help="store: direct I/O.")] = False,
    json: Json = False,
) -> int:
    """Measure the figures of benchmarks/RESULTS.md (in the repository only), or a store.

    `rankfault bench store` needs no repository: it times lookup, dump and load of the embedded
    store in PATH, or in a temporary folder, and removes what it wrote.
    """
    from harness.cli.bench import run_bench

    options = {"path": path, "pipeline": pipeline, "direct": direct}
    return run_bench(names or [], full=full, options=options, json=json)


@app.command(epilog="Exit codes: 0 nothing fails, 1 a check fails, 2 wrong usage or no configuration.")
def doctor(
    name: Annotated[str, typer.Argument(metavar="store", help="What the configuration is for.")],
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A JSON or TOML file, or - for stdin.")
    ],
    *,
    json: Json = False,
) -> int:
    """Examine a store's configuration: names, folder, direct I/O, round trip, speed, leaks.

    Each line is ok, warn or FAIL, with what to do. What is written for it is removed again.
    """
    from harness.cli.doctor import run_doctor

    return run_doctor(name, config, json=json)


@app.command(epilog="Exit codes: 0 every checker is needed, 1 one is not or a mutant escaped.")
def selftest(*, json: Json = False) -> int:
    """Show that every checker can fail: what each alone catches, and what survives without it."""
    from harness.cli.selftest import run_selftest

    return run_selftest(json=json)
