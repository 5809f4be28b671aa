"""What a rank sees of its process is its own, and the process is left as it was."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import pytest


def test_variables_arguments_and_output_are_a_ranks_own(script):
    outcome = script("""
        import os, sys
        os.environ["MINE"] = str(rank)
        dist.barrier()
        assert os.environ["MINE"] == os.getenv("MINE") == str(rank) == os.environ["RANK"]
        sys.argv.append(str(rank))
        dist.barrier()
        print(*sys.argv[1:])
    """, 3, argv=("--n", "7"))
    assert outcome.findings == ()
    assert outcome.run.printed == ["--n 7 0\n", "--n 7 1\n", "--n 7 2\n"]


def test_modules_of_the_scripts_folder_are_a_ranks_own(script):
    script.file("state.py", "GROUP = None\nclass Config:\n    pass\n")
    outcome = script("""
        import sys
        import state
        assert state.GROUP is None
        state.GROUP = rank
        dist.barrier()
        import state as again
        assert again is state and state.GROUP == rank

        class Mine:
            pass

        assert sys.modules["__main__"].Mine is Mine
        found = [None] * size
        dist.all_gather_object(found, (Mine(), state.Config()))
        assert all(type(a) is Mine and type(b) is state.Config for a, b in found)
    """, 3)
    assert outcome.findings == ()
    assert "state" not in sys.modules


def test_the_process_is_left_as_it_was(script):
    def seen():
        return (
            dict(os.environ), list(sys.argv), list(sys.path), sys.stdout, sys.excepthook,
            sys.modules["__main__"], set(sys.modules), warnings.filters, logging.root,
            list(logging.root.handlers), os.fork,
        )

    script("dist.barrier()", 2)  # whatever is imported late
    before = seen()
    script("""
        import logging, os, sys, warnings
        os.environ.clear()
        sys.argv[:] = []
        sys.path.clear()
        sys.stdout = None
        logging.basicConfig()
        warnings.simplefilter("error")
        dist.barrier()
        if rank == 1:
            raise ValueError("ends early")
        dist.barrier()
    """, 2)
    assert seen() == before


def test_loggers_are_a_ranks_own(script):
    outcome = script("""
        import logging
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        dist.barrier()
        logging.getLogger("mine").info("rank %d", rank)
    """, 2)
    assert outcome.run.printed == ["rank 0\n", "rank 1\n"]


def test_exit_handlers_run_when_the_rank_ends(script):
    outcome = script("""
        import atexit, sys
        atexit.register(dist.destroy_process_group)
        atexit.register(print, "bye")
        if rank:
            sys.exit(0)
    """, 2)
    assert outcome.findings == ()
    assert outcome.run.printed == ["bye\n", "bye\n"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os; os.fork()", "posix.fork"),
        ("import os; os.system('true')", "posix.system"),
        ("import subprocess; subprocess.run(['true'])", "Popen.__init__"),
        ("import multiprocessing; multiprocessing.Process(target=print).start()", "BaseProcess.start"),
        ("import torch.multiprocessing as mp; mp.spawn(print, nprocs=2)", "BaseProcess.start"),
    ],
)
def test_starting_a_process_is_refused(script, text, told):
    (found, *_) = script(text, 2).findings
    assert found.name == "exceptions/process_started"
    assert told.split(".")[-1] in found.message
    assert "program.py:" in found.message


def test_output_keeps_its_end():
    from harness.frontends.torch_distributed.environment import PRINTED_MAX, Output

    out = Output()
    for number in range(20000):
        print(number, file=out)
    assert len(out.text) <= PRINTED_MAX
    assert out.text.endswith("19999\n")


def test_modules_of_the_folder_may_make_collectives_while_they_are_imported(script):
    script.file("prologue.py", "import torch.distributed as dist\ndist.barrier()\n")
    outcome = script("import prologue; print(prologue.__name__)", 3)
    assert outcome.findings == ()
    assert outcome.run.printed == ["prologue\n"] * 3
