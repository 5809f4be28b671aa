"""torch.distributed's own state, one a rank, and how groups come to be in a simulated world.

torch keeps its groups in module-level state (`distributed_c10d._world` and a native registry). Each rank
gets a state of its own, in force while its code runs (environment.py), and its stores and groups come
from here: `init_process_group` and `new_group` run as torch has them, up to the helper that makes a
group. Its members meet in it: a rank that never comes blocks the others, which is seen at once (with
nccl, whose communicators come to be with their first collective, `new_group` blocks nobody).

Not modelled: RPC, torchcomms. split_group: splitting.py.
"""

from __future__ import annotations

import inspect
import sys
from datetime import timedelta
from sys import _getframe
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d

from harness.errors import CollectiveMismatch, NotAMember, WrongCollective, WrongWorld, nearest
from harness.fabric.frames import is_library
from harness.frontends.torch_distributed.backend import SimulatedGroup
from harness.frontends.torch_distributed.calls import Call
from harness.frontends.torch_distributed.compiling import eager
from harness.frontends.torch_distributed.environment import Entry
from harness.frontends.torch_distributed.exchange import Exchange
from harness.frontends.torch_distributed.place import Place
from harness.frontends.torch_distributed.splitting import splitting
from harness.frontends.torch_distributed.stores import Shelf, Unlimited, VirtualStore, seconds_of

BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl", "undefined")
# The module; torch.distributed.rendezvous is the function of that name.
_rendezvous = sys.modules["torch.distributed.rendezvous"]
_native: Any = torch._C._distributed_c10d
_PrefixStore = _native.PrefixStore


class _OwnWorld(c10d._World):
    """A rank's c10d state."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, dict[Any, Any]] = {}
        self._count = 0

    def _own(self, name: str) -> dict[Any, Any]:
        return self._held.setdefault(name, {})

    pg_map = property(lambda self: self._own("map"))
    pg_names = property(lambda self: self._own("names"))
    pg_group_ranks = property(lambda self: self._own("ranks"))
    pg_backend_config = property(lambda self: self._own("config"))
    tags_to_pg = property(lambda self: self._own("tags"))
    pg_to_tag = property(lambda self: self._own("tag_of"))

    @property
    def group_count(self) -> int:
        """How many groups have been named."""
        return self._count

    @group_count.setter
    def group_count(self, value: int) -> None:
        self._count = value


class _Isolation:
    """torch's native registry of groups, by thread while `on`."""

    _on = False

    @property
    def on(self) -> bool:
        """Whether it is by thread now."""
        return _Isolation._on

    @on.setter
    def on(self, value: bool) -> None:
        _Isolation._on = value
        _native._set_thread_isolation_mode(value)


class Gathering:
    """Who has come to a rendezvous: by rank, a work that completes when all have."""

    def __init__(self, ranks: tuple[int, ...]) -> None:
        self.ranks = ranks
        self.works: dict[int, tuple[Any, Any]] = {}


class Founding:
    """What the ranks of one run share: stores, gatherings, the exchange of their groups."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.exchange = Exchange()
        self.gatherings: dict[Any, Gathering] = {}
        self.stood_in = False  # whether this run's stand-ins (script.py) are in their places


class RankWorld:
    """One rank's torch.distributed."""

    def __init__(self, place: Place, founding: Founding) -> None:
        self._place = place
        self._founding = founding
        self._state = _OwnWorld()
        self._begun: dict[Any, int] = {}
        self._groups_made = 0
        self._known: dict[Any, dict[str, Any]] = {}  # by thread, the groups in its native registry
        place.resumed = self._resumed

    def entries(self) -> list[Entry]:
        """What differs from the process's torch.distributed while the rank's code runs."""
        found: list[Entry] = [
            (_Isolation(), "on", True),
            (c10d, "_world", self._state),
            (c10d, "_backend", None),
            (c10d, "_default_pg_init_method", None),
            (c10d, "_new_process_group_helper", self._new_group),
            (c10d, "_get_default_timeout", _default_timeout),
            (c10d._WorldMeta, "WORLD", property(_world_for, _set_world)),
            (c10d, "_warn_not_in_group", self._not_in_group),
            (c10d_logger, "_get_msg_dict", lambda name, *args, **kwargs: {"func_name": name}),
            *eager(),
            *splitting(self._place),
        ]
        for name, made in self._founding.shelf.types(self._place).items():
            found += [(owner, name, made) for owner in (dist, c10d, _rendezvous) if hasattr(owner, name)]
        return found

    def end(self) -> None:
        """The program has ended: forget its groups. Called while its surroundings are in force."""
        _native._unregister_all_process_groups()

    def known_in(self, lane: Any) -> None:
        """A thread has the turn: torch's native registry, which is by thread, is to have the groups that
        the rank has by now."""
        held = self._known.setdefault(lane, {})
        groups = {str(name): group for group, name in self._state.pg_names.items()}
        for name in [name for name, group in held.items() if groups.get(name) is not group]:
            _native._unregister_process_group(name)
            del held[name]
        for name, group in groups.items():
            if name not in held:
                _native._register_process_group(name, group)
                held[name] = group

    def unknown_in(self, lane: Any) -> None:
        """A thread has ended."""
        self._known.pop(lane, None)
        _native._unregister_all_process_groups()

    def _resumed(self) -> None:
        if (lane := self._place.lane).thread:
            self.known_in(lane)

    def _not_in_group(self, name: str) -> None:
        """torch warns of a call in a group that the rank is no member of; here it is an error."""
        place = self._place
        _, code, lasti = place.here()
        why = "this rank is no member of the group"
        place.calls.append(Call(
            kind=name.removeprefix("i") if name in ("isend", "irecv") else name, rank=place.index,
            group=(), code=code, lasti=lasti, refused=why, at=len(place.sim.events),
        ))
        raise NotAMember(f"{place.called(name, code, lasti)}: {why}")

    def _new_group(
        self, group_size: int, group_rank: int, ranks: list[int], backend: str, store: Any,
        group_name: str, backend_options: object = None, timeout: timedelta | None = None,
        pg_tag: str | None = None, device_id: object = None, group_desc: str | None = None,
    ) -> tuple[Any, Any]:
        """What stands for c10d._new_process_group_helper."""
        place, state = self._place, self._state
        _, code, lasti = place.here()
        first = not ranks
        told = place.called("init_process_group" if first else "new_group", code, lasti)
        _check_backend(told, str(backend))
        if group_name in state.pg_names.values():
            raise ValueError(f"{told}: the group name {group_name!r} is taken")
        if pg_tag:
            found = c10d._find_pg_by_ranks_and_tag(pg_tag, ranks)
            if found is not None:
                return found, state.pg_map[found][1]
        if first:
            if group_size == group_rank == -1:  # of MPI, whose launcher gives them
                group_size, group_rank = place.rank.size, place.index
            if not 0 <= group_rank < group_size:
                raise WrongWorld(f"{told}: rank {group_rank} is outside 0..{group_size - 1}")
            if group_size > place.rank.size:  # nobody else will come
                raise WrongWorld(
                    f"{told}: world size {group_size}, but {place.rank.size} ranks were started "
                    f"(--ranks {group_size} starts as many)"
                )
            members = tuple(range(group_size))
            self._meet(told, (_address(store),), members, group_rank, timeout, code, lasti)
        else:
            members = tuple(ranks)
            mine = c10d._get_default_group().rank()
            if group_name.isdigit():  # else a hash: it is made with local synchronisation
                place.calls.append(Call(
                    "new_group", mine, tuple(range(c10d._get_default_group().size())), "new_group",
                    self._groups_made, code=code, lasti=lasti, at=len(place.sim.events),
                    what=str(list(members)),
                ))
                self._groups_made += 1
            if mine not in members:
                return dist.GroupMember.NON_GROUP_MEMBER, None
            if str(backend) != "nccl":
                self._meet(told, (_address(store), group_name), members, mine, timeout, code, lasti)
        group = SimulatedGroup(
            place, self._founding.exchange, group_name, group_rank, members, str(backend), timeout
        )
        group._set_group_name(c10d.GroupName(group_name))
        group._set_group_desc(group_desc or "undefined")
        prefixed = _PrefixStore(f"{group_name}/", store)
        c10d._register_pg_in_world(
            group, backend_name=backend, store=prefixed, group_name=c10d.GroupName(group_name),
            backend_config=str(c10d.BackendConfig(c10d.Backend(backend))),
            **({"pg_tag": f"user:{pg_tag}"} if pg_tag else {"add_to_default_tag": True}),
        )
        return group, prefixed

    def _meet(
        self, told: str, key: tuple[Any, ...], members: tuple[int, ...], mine: int,
        timeout: timedelta | None, code: Any, lasti: int,
    ) -> None:
        """Wait for the other members. Raises WrongWorld or CollectiveMismatch where ranks do not fit
        together."""
        place = self._place
        count = self._begun.get(key, 0)
        self._begun[key] = count + 1
        kind = "init_process_group" if len(key) == 1 else "new_group"

        def arrive() -> Any:
            place.point(kind, -1, place.index, 0, 0)
            gathering = self._founding.gatherings.setdefault((*key, count), Gathering(members))
            op = place.sim.work(place.lane, kind, lambda: None, code, lasti)
            if kind == "init_process_group":  # ranks that are told two worlds make no call of one
                _check_fit(told, kind, gathering, members, mine)
            place.calls.append(Call(
                kind=kind, rank=mine, group=members, group_name=" ".join((kind, *map(str, key[1:]))),
                seq=count, number=op.number, code=code, lasti=lasti, at=len(place.sim.events),
            ))
            _check_fit(told, kind, gathering, members, mine)
            place.event(kind, place.index, 0, None, op.number, code, lasti)
            gathering.works[mine] = place.sim, op
            if len(gathering.works) == len(members):
                for sim, work in gathering.works.values():
                    sim.work_may_complete(work)
            return gathering, op

        gathering, op = place.offer(kind, arrive, code, lasti)
        seconds = seconds_of(timeout)
        if not place.await_work(op, seconds, lambda: told):
            assert seconds is not None
            missing = [rank for rank in members if rank not in gathering.works]
            raise dist.DistStoreError(
                f"{told}: Wait timeout after {seconds * 1000:.0f}ms; not arrived: rank "
                + ", ".join(map(str, missing))
            )


def _check_fit(
    told: str, kind: str, gathering: Gathering, members: tuple[int, ...], mine: int
) -> None:
    if gathering.ranks != members:
        if kind == "init_process_group":
            raise WrongWorld(
                f"{told}: world size {len(members)}; rank {next(iter(gathering.works))} has "
                f"{len(gathering.ranks)}"
            )
        raise CollectiveMismatch(
            f"{told}: group of ranks {list(members)}; rank {next(iter(gathering.works))} makes it of "
            f"{list(gathering.ranks)}"
        )
    if mine in gathering.works:
        raise WrongWorld(f"{told}: rank {mine} is taken: another process has come with the same RANK")


def _check_backend(told: str, backend: str) -> None:
    for part in backend.split(","):
        name = part.rpartition(":")[2].lower()
        if name not in BACKENDS:
            raise WrongCollective(f"{told}: no simulated backend {name!r}; {nearest(name, BACKENDS)}")


def _world_for(cls: type) -> Any:
    """`group.WORLD`: None (which also means the default group) while a library's module is imported. All
    ranks share such a module: a default argument `group=group.WORLD` would be the first one's for all."""
    code = _getframe(1).f_code
    imported = not code.co_flags & inspect.CO_OPTIMIZED  # of a module or a class, not of a function
    return None if imported and is_library(code.co_filename) else c10d._world.default_pg


def _set_world(cls: type, group: Any) -> None:
    c10d._world.default_pg = group


def _default_timeout(backend: object) -> timedelta:
    """torch's own limits end nothing here: a world that waits for them is blocked."""
    return Unlimited(minutes=30)


def _address(store: Any) -> Any:
    """Where ranks meet: the address of the store below all prefixes."""
    while isinstance(store, _PrefixStore):
        store = store.underlying_store
    return store.address if isinstance(store, VirtualStore) else ("store",)


__all__ = ["Founding", "RankWorld"]
