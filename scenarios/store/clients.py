"""Processes of a simulated world that use the embedded store: a rank is one, its lanes are its threads.

Lanes below `clients` run the client program on the rank's one store object, the others are the store's
workers. Every call of the store is an operation of the rank (kinds `store_dump`, `store_load`, …, with
their arguments by name, so that faults reach them) and stands in the history with its answer. A
`StoreError` is an answer; any other exception is the program's end, and a finding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from sys import _getframe
from types import FrameType
from typing import Any

import torch

from harness import Rank, RankClock, RankWorkers, SimulatedDisk, Window, World, rank_call, rank_disk
from scenarios.store.history import (
    ELEMENT,
    FILLED,
    POISON,
    REUSED,
    SPOILED,
    Call,
    Early,
    History,
    Passed,
    content,
)
from scenarios.store.patterns import pattern
from systems.store import UcmConnectorFactory
from systems.store.errors import FAILED, OK, TIMEOUT, StoreError
from systems.store.front import BlockStore
from systems.store.piece import page_aligned
from systems.store.tasks import Task

FOLDER = "/store"
EVENTS = 255  # that one rank's store may make in a run
DIRECT_BLOCK = 512

# The store tells of every failed block: under faults that is each plan's log, and nobody reads it.
logging.getLogger("ucm").addHandler(logging.NullHandler())


class Process:
    """What the lanes of one rank share: workers, clock, disk, and the store object."""

    def __init__(self, rank: Rank, cells: Window, disk: SimulatedDisk, clients: int) -> None:
        self.workers = RankWorkers(rank, cells)
        self.clock = RankClock(rank)
        self.disk = rank_disk(rank, disk)
        self.ready = self.workers.event()
        self.together = self.workers.event()
        self.coming = clients
        self.left = clients
        self.opened = 0
        self.store: BlockStore | None = None


class Client:
    """One client thread of a rank's store; without a store every call does nothing.

    elements: of a block.
    """

    def __init__(self, rank: Rank, process: Process, history: History, elements: int) -> None:
        self.rank = rank
        self.process = process
        self.history = history
        self.elements = elements

    def open(self, config: Mapping[str, Any]) -> bool:
        """Create the store; whether that went well."""
        process = self.process

        def create(config: Mapping[str, Any]) -> BlockStore:
            return UcmConnectorFactory.create_connector(
                "UcmPipelineStore", dict(config), disk=process.disk, executor=process.workers,
                clock=process.clock,
            )

        process.opened += 1
        if process.disk.tree is not self.history.disk.tree:  # after a power cut
            process.disk = rank_disk(self.rank, self.history.disk)
        names = {"storage_path": FOLDER, "writer": f"rank{self.rank.index}-{process.opened}"}
        call, store = self._call("open", (), create, config={**names, **config})
        process.store = store
        return not call.error

    def _call(
        self, kind: str, blocks: Sequence[int], body: Callable[..., Any] | str, *, shard: int = 0,
        flags: Sequence[bool] = (), **args: Any,
    ) -> tuple[Call, Any]:
        """One call in the history; its answer, None where it raised or there is no store."""
        process = self.process
        if process.store is None and kind != "open":
            return Call(self.rank.index, kind, tuple(blocks)), None
        call = self.history.begin(
            self.rank.index, kind, blocks, shard=shard, flags=tuple(flags), opened=process.opened,
            began=process.clock.events(), meant=Passed.of(args),
        )
        self._latest = call
        method = getattr(self._store, body) if isinstance(body, str) else body

        def performed(**given: Any) -> Any:
            call.given = Passed.of(given)
            return method(**given)

        what = ", ".join(map(str, blocks))
        answer = None
        try:
            answer = rank_call(self.rank, f"store_{kind}", performed, what, frame=_caller(), **args)
        except StoreError as error:
            call.error, call.text = type(error).__name__, str(error)
            call.codes = (error.code,) * len(call.blocks)
        call.ended = process.clock.events()
        return call, answer

    def lookup(self, blocks: Sequence[int]) -> list[bool]:
        """Which blocks are there; empty where the lookup raised."""
        call, hits = self._call("lookup", blocks, "lookup", block_ids=self._ids(blocks))
        if hits is not None:
            call.codes = tuple(int(hit) for hit in hits)
        return hits or []

    def lookup_on_prefix(self, blocks: Sequence[int]) -> int:
        """The index of the last hit of the prefix; -1 where the lookup raised."""
        call, last = self._call(
            "prefix", blocks, "lookup_on_prefix", block_ids=self._ids(blocks)
        )
        if last is None:
            return -1
        call.codes = tuple(int(index <= last) for index in range(len(blocks)))
        return int(last)

    def dump(
        self, blocks: Sequence[int], shard: int = 0, *, poll: bool = False, cancel: bool = False
    ) -> list[int]:
        """Dump blocks and wait; a status a block. cancel: give up at once what has not begun."""
        source = self._memory(blocks)
        for index, block in enumerate(blocks):
            part = source[index * self.elements : (index + 1) * self.elements]
            part.copy_(content(block, shard, self.elements))

        def submit(
            block_ids: list[bytes], offset: int, tensor: torch.Tensor, *, spoil: bool = False
        ) -> Task:
            task = self._store.dump(block_ids, offset, tensor)
            if spoil:
                self._goes_on(task, "wrote its source")
                tensor.fill_(SPOILED)
            return task

        return list(self._transfer("dump", blocks, shard, source, submit, poll=poll, cancel=cancel).codes)

    def load(self, blocks: Sequence[int], shard: int = 0, *, poll: bool = False) -> list[int]:
        """Load blocks, wait and compare; a status a block."""
        target = self._memory(blocks)
        seen = target

        def submit(
            block_ids: list[bytes], offset: int, tensor: torch.Tensor, *, spoil: bool = False
        ) -> Task:
            nonlocal seen
            task = self._store.load(block_ids, offset, tensor)
            seen = tensor
            if spoil:
                self._goes_on(task, "read its destination")
                seen = tensor.clone()
            return task

        call = self._transfer("load", blocks, shard, target, submit, poll=poll)
        if call.codes and not any(code == TIMEOUT for code in call.codes):
            self._compare(call, seen)
        return list(call.codes)

    def _goes_on(self, task: Task, how: Early) -> None:
        """The client does not wait for the task of its call: noted where that is too early."""
        if None in task.statuses:
            self._latest.early, self._latest.early_at = how, self.process.clock.events()

    def _memory(self, blocks: Sequence[int]) -> torch.Tensor:
        """Poisoned memory for the blocks; it begins on a page, so that a plan's direct I/O repeats."""
        count = len(blocks) * self.elements
        return page_aligned(max(count, 1) * ELEMENT.itemsize).view(ELEMENT)[:count].fill_(POISON)

    def _compare(self, call: Call, tensor: torch.Tensor) -> None:
        """Note what is wrong with the blocks that were loaded, as the store says."""
        for index, block in enumerate(call.blocks):
            got = tensor[index * self.elements : (index + 1) * self.elements]
            due = content(block, call.shard, self.elements)
            if call.codes[index] == OK and _bytes(got) != _bytes(due):
                known = {
                    FILLED: _bytes(torch.full_like(due, POISON)),
                    REUSED: _bytes(torch.full_like(due, SPOILED)),
                }
                known |= {
                    f"block {other}": _bytes(content(other, call.shard, self.elements))
                    for other in sorted({one for call in self.history.calls for one in call.blocks})
                    if other != block
                }
                known |= {
                    f"block {block} shard {other}": _bytes(content(block, other, self.elements))
                    for other in range(self.history.shards) if other != call.shard
                }
                found = pattern(_bytes(due), _bytes(got), known)
                if found is not None:
                    call.wrong[block] = found

    def _transfer(
        self, kind: str, blocks: Sequence[int], shard: int, tensor: torch.Tensor,
        submit: Callable[..., Task], *, poll: bool, cancel: bool = False,
    ) -> Call:
        """Submit, wait, and note the status of each block as the store tells it."""
        call, task = self._call(
            kind, blocks, submit, shard=shard, block_ids=self._ids(blocks), offset=shard, tensor=tensor
        )
        if task is None:
            return call
        call.ended = -1
        if cancel:
            call.cancelled = True
            self._store.cancel(task)
        while poll and not self._store.check(task)[1]:
            pass
        code = rank_call(
            self.rank, "store_wait", self._store.wait, str(task.id), frame=_caller(), task=task
        )
        if code is None:  # a fault has left out the wait
            self._goes_on(task, "went on")
            code = OK
        if code in (OK, TIMEOUT):
            call.codes = (code,) * len(call.blocks)
        else:
            call.codes = tuple(FAILED if one is None else one for one in task.statuses)
            failure = self._store.error(task)
            call.text = "" if failure is None else failure.text
        call.ended = self.process.clock.events()
        return call

    def commit(self, blocks: Sequence[int], good: Sequence[bool] | None = None) -> list[int]:
        """Commit blocks, or drop those that are not good; a status a block."""
        flags = [True] * len(blocks) if good is None else list(good)
        call, codes = self._call(
            "commit", blocks, "commit", flags=flags, block_ids=self._ids(blocks), is_success=flags
        )
        if codes is not None:
            call.codes = tuple(codes)
        return list(call.codes)

    def prefetch(self, blocks: Sequence[int]) -> None:
        """Bring blocks nearer."""
        self._call("prefetch", blocks, "prefetch", block_ids=self._ids(blocks))

    def close(self) -> None:
        """Close the store; a further one may be opened."""
        call, _ = self._call("close", (), "close")
        if not call.error:
            self.history.closed += 1

    def _ids(self, blocks: Sequence[int]) -> list[bytes]:
        return [self.history.id_of(block) for block in blocks]

    def meet(self) -> None:
        """Wait for the other clients of the process; once in a run."""
        self.process.coming -= 1
        if self.process.coming:
            self.process.together.wait(None)
        else:
            self.process.together.set()

    def leave(self) -> None:
        """The end of a client's program: the last client of the rank closes the store."""
        if self.process.left == 1:
            self.close()

    def cut_power(self, *, durable: bool) -> None:
        """The disk keeps what is durable; all processes are to have ended.

        durable: whether what was acknowledged so far should be.
        """
        history = self.history
        before, history.disk = history.disk, history.disk.durable()
        old, new = before.tree, history.disk.tree
        left = set(new.names())
        history.taken = [
            name for name in old.names() if name not in left or new.find(name).data != old.find(name).data
        ]
        history.cuts.append(self.process.clock.events())
        if not durable:
            history.forgotten = self.process.clock.events()

    @property
    def _store(self) -> BlockStore:
        assert self.process.store is not None
        return self.process.store


Program = Callable[[Client], None]


class Processes:
    """The processes of a run, made as their ranks begin."""

    def __init__(self, history: History, *, elements: int, clients: int = 1) -> None:
        self.history = history
        self.elements = elements
        self.clients = clients
        self._made: dict[int, Process] = {}

    def enter(self, rank: Rank, cells: Window, program: Program, config: Mapping[str, Any]) -> None:
        """A lane's part: open the store (the first lane), run a client, or serve the store."""
        process = self._made.get(rank.index)
        if process is None:
            process = Process(rank, cells, self.history.disk, self.clients)
            self._made[rank.index] = process
        if rank.lane >= self.clients:
            process.workers.serve()
            return
        client = Client(rank, process, self.history, self.elements)
        try:
            if rank.lane:
                process.ready.wait(None)
            else:
                client.open(config)
                process.ready.set()
            program(client)
        finally:
            process.left -= 1
            if not process.left:
                process.workers.close()


def run_clients(
    world: World, program: Program, config: Mapping[str, Any], history: History, *, elements: int,
    clients: int = 1, workers: int = 1,
) -> dict[str, Any]:
    """Dispatch `program` to every rank; what a scenario's host program returns."""
    cells = world.alloc([1 + EVENTS], torch.int32, name="store")
    processes = Processes(history, elements=elements, clients=clients)
    for device in range(world.size):
        world.dispatch(
            _process, cells, processes, program, config, device=device, lanes=clients + workers
        )
    return {"history": history}


def _process(
    rank: Rank, cells: Window, processes: Processes, program: Program, config: Mapping[str, Any]
) -> None:
    processes.enter(rank, cells, program, config)


def new_disk() -> SimulatedDisk:
    """An empty disk that takes direct I/O."""
    return SimulatedDisk(direct_block=DIRECT_BLOCK)


def _caller() -> FrameType | None:
    """The frame of the client program that is making a call."""
    frame: FrameType | None = _getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()
