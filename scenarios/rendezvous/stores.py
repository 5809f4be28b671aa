"""c10d's TCPStore and FileStore: what they acknowledge is there, and every call ends in time.

Two clients in subject processes take turns with the calls of the plan; before one of them something may
happen to the server or to the file. The model is a dict. A call may fail (a missing key after its
timeout, a dead server), but what was acknowledged is kept, what was never set is not told, a client whose
call was refused goes on to work, and nothing takes longer than its timeout and some seconds.

Not modelled: wait, append, queues, several calls at the same time (rendezvous itself), a server that
comes back.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import torch
from msgspec import Meta

from harness import (
    Answer,
    Crashed,
    Expired,
    Finding,
    Rank,
    Reply,
    Run,
    Scenario,
    Site,
    Subject,
    World,
    likely,
)

TIMEOUT = 1.0
WITHIN = 4.0  # for a call whose store has a timeout of 1 s
START = 60.0
TEXT, COUNT, MISSING = "text", "count", "missing"
PRELOAD = ("torch.distributed",)
Kind = Literal["set", "get", "add", "get_missing", "add_to_text", "compare_set"]
Kinds = Annotated[tuple[Kind, ...], Meta(min_length=1, max_length=6)]
At = Annotated[int, Meta(ge=0, le=5)]


class Tcp(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """calls: by the two clients in turn. event: what happens to the server before call number `at`."""

    calls: Kinds = ("set", "get")
    event: Literal["none", "killed", "stopped"] = "none"
    at: At = 1
    libuv: bool = True


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """event: what happens to the file before call number `at`; cut: by so many bytes."""

    calls: Kinds = ("set", "get")
    event: Literal["none", "truncated"] = "none"
    at: At = 1
    cut: Annotated[int, Meta(ge=1, le=64)] = 1


@dataclass(slots=True)
class Calls:
    """The calls with their replies; `event` stands for what happened before call number `at`, `told` says
    it in words."""

    store: str
    event: str = "none"
    at: int = 0
    told: str = ""
    made: list[tuple[int, str, tuple[str | int, ...], Reply]] = field(default_factory=list)


class RendezvousChecker:
    """Kinds: lost_write, phantom_value, unexpected_error, hang, crash."""

    name = "rendezvous"

    def check(self, run: Run) -> Iterable[Finding]:
        """The first wrong answer."""
        if isinstance(run.observed, Calls):
            yield from _first_wrong(run.observed)


def _first_wrong(calls: Calls) -> Iterator[Finding]:
    held: dict[str, str] = {}
    for number, (client, what, given, reply) in enumerate(calls.made):
        gone = calls.event != "none" and number >= calls.at
        kind, text = _wrong(what, given, reply, held, gone=gone)
        if kind:
            cause, remedy = likely(f"{RendezvousChecker.name}/{kind}")
            sites = [Site(calls.store, what)]
            if gone:
                sites.append(Site("outside", calls.event))
            told = [f"call {n}: client {one[0]} {one[1]}{one[2]}: {_told(one[3])}"
                    for n, one in enumerate(calls.made)]
            if calls.event != "none":
                told.insert(calls.at, f"before call {calls.at}: {calls.told}")
            yield Finding(
                checker=RendezvousChecker.name, kind=kind, rank=0, sites=tuple(sites), cause=cause,
                message=f"client {client}'s {what}{given}: {text}", remedy=remedy, evidence=tuple(told),
            )
            return


def _told(reply: Reply) -> str:
    return f"{reply.value!r}" if isinstance(reply, Answer) else str(reply)[:200]


def _wrong(
    what: str, given: tuple[str | int, ...], reply: Reply, held: dict[str, str], *, gone: bool
) -> tuple[str, str]:
    """Kind and text of what is wrong with one reply, ("", "") if nothing is; keeps the model."""
    if isinstance(reply, Expired):
        return "hang", f"{reply}, although the store's timeout is {TIMEOUT:g} s"
    if isinstance(reply, Crashed):
        return "crash", str(reply)
    key = str(given[0])
    refusable = gone or (what == "get" and key not in held) or (what == "add" and key == TEXT)
    if not isinstance(reply, Answer):
        return ("", "") if refusable else ("unexpected_error", str(reply))
    if gone and what != "get":
        return "lost_write", "acknowledged, although there is nobody left to keep it"
    value = "" if reply.value is None else str(reply.value)
    if what == "get" and value != held.get(key):
        return "phantom_value", f"answered {value!r}, where the key holds {held.get(key)!r}"
    if what == "compare_set":
        if held.get(key, "") == given[1]:
            held[key] = str(given[2])
        if value != held.get(key, ""):
            return "phantom_value", f"answered {value!r}, where the key holds {held.get(key)!r}"
    elif what == "set":
        held[key] = str(given[1])
    elif what == "add":
        held[key] = str(int(held.get(key, "0")) + int(given[1]))
        if value != held[key]:
            return "phantom_value", f"answered {value}, where the counter is {held[key]}"
    return "", ""


def _arguments(kind: Kind, number: int) -> tuple[str, tuple[str | int, ...]]:
    """The method and its arguments."""
    if kind == "set":
        return "set", (TEXT, f"value {number}")
    if kind == "get":
        return "get", (TEXT,)
    if kind == "get_missing":
        return "get", (MISSING,)
    if kind == "compare_set":
        return "compare_set", (MISSING, "other", f"value {number}")
    return "add", (COUNT if kind == "add" else TEXT, 1)


def _drive(calls: Calls, clients: list[Subject], params: Tcp | File, event: Callable[[], str]) -> Calls:
    """Every call in its turn; the first one that does not come back is the last."""
    for number, kind in enumerate(params.calls):
        if params.event != "none" and number == params.at:
            calls.event, calls.at, calls.told = params.event, number, event()
        what, given = _arguments(kind, number)
        client = number % len(clients)
        reply = clients[client].call(what, *given, within=WITHIN)
        calls.made.append((client, what, given, reply))
        if isinstance(reply, Expired | Crashed):
            break
    return calls


def _made(name: str) -> Subject:
    return Subject(f"scenarios.rendezvous.c10d:{name}", preload=PRELOAD)


def _expect(reply: Reply) -> Any:
    """The answer of a call that belongs to the set-up."""
    if not isinstance(reply, Answer):
        raise RuntimeError(f"the store cannot be set up: {reply}")
    return reply.value


def _tcp(world: World, params: Tcp) -> Calls:
    world.dispatch(_nothing, device=0)
    with ExitStack() as stack:
        server = stack.enter_context(_made("Server"))
        port = _expect(server.call("start", params.libuv, within=START))
        clients = [stack.enter_context(_made("Client")) for _ in range(2)]
        for client in clients:
            _expect(client.call("connect", port, TIMEOUT, params.libuv, within=START))

        def event() -> str:
            if params.event == "killed":
                server.kill()
                return "SIGKILL for the server"
            os.kill(server.pid, signal.SIGSTOP)
            return "SIGSTOP for the server"

        return _drive(Calls("TCPStore"), clients, params, event)


def _file(world: World, params: File) -> Calls:
    world.dispatch(_nothing, device=0)
    folder = Subject.new_folder()
    path = os.path.join(folder, "store")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        clients = [stack.enter_context(_made("Client")) for _ in range(2)]
        for client in clients:
            _expect(client.call("open", path, TIMEOUT, within=START))

        def event() -> str:
            size = os.path.getsize(path)
            left = max(0, size - params.cut)
            os.truncate(path, left)
            return f"the file is cut from {size} to {left} bytes"

        return _drive(Calls("FileStore"), clients, params, event)


def _nothing(rank: Rank) -> int:
    """The rank has no part in it: the host program drives the store."""
    return rank.index


def _version() -> str:
    return f"torch {torch.__version__.partition('+')[0]}"


tcp = Scenario(
    name="rendezvous.tcp_store", host=_tcp, params=Tcp, ranks=(1, 1), checkers=(RendezvousChecker(),),
    subject=_version, doc="Two clients of a TCPStore whose server is killed or stopped.",
)
file = Scenario(
    name="rendezvous.file_store", host=_file, params=File, ranks=(1, 1), checkers=(RendezvousChecker(),),
    subject=_version, doc="Two clients of a FileStore whose file is cut off.",
)
