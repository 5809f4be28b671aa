"""One event in words, from the fullest wording to the shortest, for columns of any width."""

from __future__ import annotations

from harness.checkers.wording import decoded, elements, shown
from harness.fabric.memory import POISON, filled
from harness.record import CALLED, DELIVERIES, FETCHED, OF_WORKS, Event, Run, place

_WRITES = frozenset(("store", "store_issue", "remote_store", "put", "put_nbi", "put_signal"))

_LANDS = {
    "read": "reads ", "read_part": "reads part ", "land": "lands ", "deliver_part": "part ",
    "write_back": "line ",
}
_OF_WORKS = {
    "complete": "{} completes", "wait_work": "wait for {}", "expired": "stop waiting for {}",
}
_VERBS = {
    "deliver": "is delivered to", "deliver_part": "is delivered in part to", "read": "reads from",
    "read_part": "reads in part from", "land": "lands at", "write_back": "writes its line back to",
}


def memory_of(run: Run, event: Event) -> str:
    """`inbox[0:4]`, or "" for an event that touches no memory."""
    if event.window < 0 or event.hi <= event.lo:
        return ""
    return elements(run, event.window, event.lo, event.hi).replace("'", "")


def value_of(run: Run, event: Event) -> str:
    """The value that an event carried: `[1, 65]`, `poison`, `+1`, or "" when it carried none."""
    value = event.value
    if isinstance(value, tuple):
        return f"set {value[1]}"
    if isinstance(value, int):
        return f"+{value}" if event.kind in ("notify", "signal") and value >= 0 else str(value)
    if not isinstance(value, bytes) or len(value) != event.hi - event.lo:
        return ""
    if not value:
        return ""
    if value == filled(POISON, len(value)):
        return "poison"
    return shown(decoded(value, run.names[event.window].dtype))


def wordings(run: Run, event: Event) -> list[str]:
    """What a lane did, the fullest wording first."""
    name = CALLED.get(event.kind, event.kind)
    if event.kind.endswith("_arrive"):
        name = f"arrive at {name}"
    if event.kind == "get_issue":
        name = "get"
    if event.kind == "signal":
        name = "signal"
    if event.kind == "expired":
        name = "stop waiting for"
    if event.kind == "get":
        return ["get returns", "get"]
    if event.kind in OF_WORKS and event.number >= 0:
        what = f"{run.issue_of(event).kind} #{event.number}"
        verb = _OF_WORKS[event.kind]
        return [verb.format(what), verb.format(f"#{event.number}")]
    if event.kind == "fault":
        return ["a fault fires here", "fault fires", "fault"]
    if event.kind in ("crash", "raise", "peer_lost", "sleep", "fence", "quiet", "publish"):
        word = {"crash": "dies", "raise": "raises", "peer_lost": "gets PeerLost"}
        return [word.get(event.kind, event.kind)]
    if isinstance(event.value, str):  # an operation of a disk, a call of a system
        name = name.removeprefix("disk_").replace("_", " ")
        return [f"{name} {event.value}".rstrip(), name]
    number = f" #{event.number}" if event.number >= 0 else ""
    memory = memory_of(run, event)
    if event.kind in ("window", "window_arrive", "free") and event.window >= 0:
        memory = run.names[event.window].name
    to = f" -> {event.peer}" if event.number >= 0 and not event.kind.startswith("get") else ""
    if event.kind in ("get_issue", "get_nbi", "remote_load"):
        memory = f"{memory} of {event.peer}"
    value = value_of(run, event)
    full = f"{name}{number}{to}"
    bare = memory.split(" of ")[0]
    if number:  # deliveries refer to it, so it stays longest
        texts = [f"{full} {memory}".rstrip(), full, f"{name}{number}"]
    else:
        texts = [f"{name} {memory}".rstrip(), f"{name} {bare}".rstrip(), name]
    if value:
        sign = " " if value[0] == "+" or value.startswith("set ") else " = "
        if event.kind in _WRITES:
            sign = " := "
        short = [f"{name} {bare}{sign}{value}", f"{name}{sign}{value}"]
        short = [] if number or event.kind == "wait" else short
        texts[:0] = [f"{full} {memory}{sign}{value}", *short]
    return texts


def landings(run: Run, event: Event) -> list[str]:
    """What a delivery did at its target, the fullest wording first."""
    memory, value = memory_of(run, event), value_of(run, event)
    word = _LANDS.get(event.kind, "")
    texts = [f"{word}{memory}", word.strip() or "arrives"]
    if value:
        sign = " = " if event.kind in FETCHED else " := "
        texts.insert(0, f"{word}{memory}{sign}{value}")
    return texts


def line(run: Run, index: int) -> str:
    """An event as one line of a log: number, who, what, value, place in the program."""
    event = run.events[index]
    who = run.lane_name(run.lane_of(event))
    if event.kind in DELIVERIES:
        issue = run.issue_of(event)
        verb = _VERBS[event.kind]
        name = CALLED.get(issue.kind, issue.kind)
        text = (
            f"{name} #{event.number} of {who} {verb} rank {event.peer}: "
            + landings(run, event)[0]
        )
    else:
        text = f"{who}: {wordings(run, event)[0]}"
    return f"{index:5d}  {text:60}  {place(event.code, event.lasti)}"


def fitting(texts: list[str], width: int) -> str:
    """The fullest wording that fits, or the shortest one cut."""
    for text in texts:
        if len(text) <= width:
            return text
    return texts[-1][: max(width - 1, 0)] + "…" if width > 0 else ""
