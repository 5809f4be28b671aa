"""Other people's stores: what their documentation promises holds, what it does not is found.

LMCache runs in an environment of its own, nightly and where it is installed.
"""

from pathlib import Path

import pytest

from harness import plans, run
from harness.corpus import files, read
from harness.hunt import Order, hunt
from harness.strategy import drawn
from scenarios.store.adapters import black_box
from scenarios.store.adapters.lmcache_store import LMCacheDisk, LMCacheL2
from scenarios.store.adapters.rocksdict_store import Rocksdict
from scenarios.store.adapters.tensor_files import Safetensors, TorchMapped

PLANS = 2
PLANS_TO_FIND = 100
EVERY = tuple(black_box(LMCacheL2))
SELDOM = ("odd_sizes", "missing_blocks", "duplicates", "empty_lists", "partial_batch", "lookup_order")
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(900)]

# What plans drawn at random find by themselves, as (kind, what happened outside).
DAMAGE = {
    Safetensors: {
        ("silent_corruption", "bit flip"), ("silent_corruption", "swapped"), ("crash", "truncated"),
    },
    TorchMapped: {
        ("silent_corruption", "bit flip"), ("silent_corruption", "swapped"), ("crash", "truncated"),
    },
    LMCacheDisk: {
        ("silent_corruption", "bit flip"), ("silent_corruption", "swapped"),
        ("silent_corruption", "truncated"), ("unexpected_error", "deleted"),
    },
    LMCacheL2: {("silent_corruption", "bit flip"), ("silent_corruption", "swapped")},
}


def is_here(adapter):
    return pytest.mark.skipif(bool(adapter.missing()), reason=adapter.missing() or "it is here")


def cases(*adapters, without=(), nightly=()):
    return [
        pytest.param(
            adapter, name, id=f"{adapter.__name__}-{name}",
            marks=[is_here(adapter), *(NIGHTLY if name in nightly else ())],
        )
        for adapter in adapters for name in black_box(adapter) if name not in without
    ]


def hunted(adapter, name, plans_max=PLANS):
    scenario = black_box(adapter)[name]
    if scenario.missing:
        pytest.skip(scenario.missing)
    return hunt(Order(scenario, 3, plans_max=plans_max)).finding


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        *cases(Rocksdict, nightly=SELDOM),
        *cases(Safetensors, TorchMapped, without=("outside_damage",), nightly=SELDOM),
        *cases(LMCacheDisk, LMCacheL2, without=("outside_damage", "shortage"), nightly=EVERY),
    ],
)
def test_what_is_promised_holds(adapter, name):
    assert hunted(adapter, name) is None


def damage(adapter):
    """What plans that are drawn at random find, until it is all of DAMAGE."""
    scenario, found = black_box(adapter)["outside_damage"], set()
    for plan in drawn(plans(scenario, faults=False, schedule=False), PLANS_TO_FIND, adapter.__name__):
        for finding in run(plan, scenario=scenario).findings:
            found.add((finding.kind, finding.sites[-1].operation))
        if found >= DAMAGE[adapter]:
            break
    return found


@pytest.mark.parametrize("adapter", [
    pytest.param(Safetensors, marks=is_here(Safetensors)),
    pytest.param(TorchMapped, marks=NIGHTLY),  # the default run replays its seeds
    pytest.param(LMCacheDisk, marks=[is_here(LMCacheDisk), *NIGHTLY]),
    pytest.param(LMCacheL2, marks=[is_here(LMCacheL2), *NIGHTLY]),
])
def test_hunts_find_what_damaged_files_do(adapter):
    assert damage(adapter) >= DAMAGE[adapter]


@pytest.mark.nightly
@pytest.mark.timeout(600)
@is_here(LMCacheDisk)
def test_a_full_disk_leaves_a_put_task_for_ever():
    finding = hunted(LMCacheDisk, "shortage", 6)
    assert finding.name == "store/unexpected_error"
    assert "its put task does not end" in finding.message


def test_seeds_of_other_peoples_stores_say_which_version():
    seeds = [read(path) for path in files(Path(__file__).parents[4] / "seeds")]
    others = [seed for seed in seeds if seed.name.startswith(
        ("lmcache", "safetensors", "torch_mapped", "tcp_store", "file_store"))]
    assert len(others) == 18
    for seed in others:
        package, version = seed.origin.subject.split()
        assert package in ("lmcache", "safetensors", "torch"), seed.name
        assert version[0].isdigit()
        assert seed.status == "open"
