"""What a running daemon has and does, as people read it; `admin` says what is asked."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from ....interpreter.errors import TensordError
from ..drawing.figures import count, duration, plural, shape, size, some
from ..drawing.tables import Column, plain, print_table
from ..line.output import tell
from .ask import ask

_ERRORS_SHOWN = 5
_IDLE = "idle"


# -- health ------------------------------------------------------------------------------------------------------------


def tell_health(address: str | None, wait: float) -> int:
    """Say whether the daemon needs a look, and why; the exit status."""
    from .health import HEALTHY, NEEDS_A_LOOK, PATIENCE, UNREACHABLE, Reason, reasons

    try:
        status = ask(address, "status", wait=wait, patience=PATIENCE)
        state, found = "healthy", list(reasons(status))
    except (TensordError, OSError) as error:
        said = error.message if isinstance(error, TensordError) else str(error)
        state, found = "unreachable", [Reason("daemon", said, "tensord doctor")]
    if state == "healthy" and found:
        state = "needs a look"
    tell({"state": state, "reasons": [reason._asdict() for reason in found]}, show_health)
    return {"healthy": HEALTHY, "needs a look": NEEDS_A_LOOK, "unreachable": UNREACHABLE}[state]


def show_health(found: Mapping[str, Any]) -> None:
    """Show the state, and the reasons for it."""
    print(found["state"])
    for reason in found["reasons"]:
        print(plain("{check}: {message} ({advice})".format(**reason)))


# -- status ------------------------------------------------------------------------------------------------------------


def show_status(found: Mapping[str, Any]) -> None:
    """Show counters, the memory of devices, and troubles."""
    for line in summary(found):
        print(line)
    print_table(MEMORY, _memory(found))
    _show_troubles(found)


def summary(found: Mapping[str, Any]) -> list[str]:
    """The counters of a status, as lines of text."""
    done, trace = found["instructions"], found["trace"]
    kept = f"{count(trace['records'])} of {count(trace['capacity'])} records, {count(trace['dropped'])} older ones lost"
    ended = f"{count(done['retired'])} done, {count(done['failed'])} of them failed"
    files = found["descriptors"]
    taken = f"{size(found['memory'])} of memory, {count(files['open'])} of {count(files['limit'])} open files"
    process = f"{found['pid']}, up {duration(found['uptime'])}, {taken}"
    held = f"{plural(found['tensors'], 'tensor')}; {plural(found['names'], 'published name')}"
    return [
        f"tensord {found['version']} at {found['address']}",
        f"  process       {process}",
        f"  sessions      {count(found['sessions'])} with {held}",
        f"  instructions  {ended}; {count(done['live'])} live, {count(done['pending'])} pending",
        f"  trace         {kept if trace['enabled'] else 'off'}",
        *(
            f"  checkpoint    {size(one['written'])} of {size(one['bytes'])} written to {one['directory']}"
            for one in found["checkpoints"]
        ),
    ]


def _memory(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each device, with its name and its transfers."""
    for name, one in found["devices"].items():
        yield {"name": name, "moved": found["transfers"][name], **one}


MEMORY: Final = (
    Column("device", itemgetter("name")),
    Column("used>", lambda one: size(one["used"])),
    Column("of>", lambda one: size(one["limit"])),
    Column("cached>", lambda one: size(one["cached"])),
    Column("moved", lambda one: moved(one["moved"]), folds=True),
    Column("evicted", lambda one: evicted(one["eviction"]), folds=True),
    Column("lost", itemgetter("lost"), folds=True),
)


def moved(transfers: Mapping[str, Mapping[str, int]]) -> str:
    """`h2d 3 x, 12 MiB; d2h ...`."""
    return "; ".join(f"{kind} {count(one['count'])} x, {size(one['bytes'])}" for kind, one in transfers.items())


def evicted(found: Mapping[str, Any]) -> str:
    """`12 to cpu:0, 3 MiB; 4 dropped, 1 MiB; 9 back, 2 MiB; 1 MiB pinned`: only what there is."""
    parts = (("evicted", f"to {found['below']}"), ("dropped", "dropped"), ("returned", "back"))
    texts = [
        f"{count(found[name]['count'])} {what}, {size(found[name]['bytes'])}"
        for name, what in parts
        if found[name]["count"]
    ]
    if found["pinned"]:
        texts.append(f"{size(found['pinned'])} pinned")
    return "; ".join(texts)


def _show_troubles(found: Mapping[str, Any]) -> None:
    for one in found["hung"]:
        place = f", called at {one['location']}" if one.get("location") else ""
        since = duration(one["seconds"])
        print(plain(f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {since}{place}"))
    errors = found["recent_errors"]
    for error in errors[-_ERRORS_SHOWN:]:
        place = f" [{error['location']}]" if error.get("location") else ""
        number = f"#{error['instruction']} " if error.get("instruction") else ""
        print(plain(f"error: {number}{error['type']}: {error['message']}{place}"))
    if len(errors) > _ERRORS_SHOWN:
        print(f"and {len(errors) - _ERRORS_SHOWN} earlier errors; --json lists them")


# -- sessions ----------------------------------------------------------------------------------------------------------


def show_sessions(found: Sequence[Mapping[str, Any]]) -> None:
    """Show a table of sessions."""
    print_table(SESSIONS, found, caption=plural(len(found), "session"))


def session_remark(one: Mapping[str, Any]) -> str:
    """What is special about a session."""
    remarks = [
        "cancelled" if one["cancelled"] else "",
        one["state"] if one["state"] != "open" else "",
        "strict" if one["strict"] else "",
        *_shares_of(one),
        "this command" if one["asks"] else "",
    ]
    return ", ".join(filter(None, remarks))


def _shares_of(session: Mapping[str, Any]) -> list[str]:
    """What a session has on each device that has a ceiling, if it has anything there."""
    return [
        f"{size(share['bytes'])} of {size(share['ceiling'])} on {name}"
        for name, share in session["shares"].items()
        if share["bytes"]
    ]


SESSIONS: Final = (
    Column("id>", itemgetter("id")),
    Column("name", itemgetter("name"), folds=True),
    Column("pid>", lambda one: one["pid"] or ""),
    Column("via", itemgetter("kind"), spare=3),
    Column("age>", lambda one: duration(one["age"]), spare=1),
    Column("tensors>", lambda one: count(one["tensors"])),
    Column("bytes>", lambda one: some(size, one["bytes"])),
    Column("peak>", lambda one: some(size, one["peak"]), spare=5),
    Column("alone>", lambda one: some(size, sum(one["freed"].values()))),
    Column("moved>", lambda one: some(size, one["moved"]["bytes"]), spare=6),
    Column("evicted>", lambda one: some(size, one["evicted"]["bytes"]), spare=7),
    Column("live>", lambda one: some(count, one["live"])),
    Column("pending>", lambda one: some(count, one["pending"])),
    Column("errors>", lambda one: some(count, one["errors"]), spare=4),
    Column("names>", lambda one: some(count, one["names"]), spare=2),
    Column("remark", session_remark, folds=True),
)


# -- tensors -----------------------------------------------------------------------------------------------------------


def show_tensors(found: Sequence[Mapping[str, Any]], *, limit: int, session: int, device: str) -> None:
    """Show a table of tensors, `limit` at the most."""
    print_table(
        TENSORS,
        found,
        caption=f"the {plural(len(found), 'tensor')} shown are the largest" if len(found) == limit else "",
        empty=f"no tensors{f' of session {session}' if session else ''}{f' on {device}' if device else ''}",
    )


def _copies(one: Mapping[str, Any]) -> str:
    return ", ".join(where if state == "valid" else f"{where} {state}" for where, state in one["residency"].items())


def _tensor_remark(one: Mapping[str, Any]) -> str:
    shared = f"shares {size(one['storage_bytes'])} (copy {one['storage']})" if one["sharers"] > 1 else ""
    return ", ".join(filter(None, ["view" if one["view"] else "", shared, one["error"]]))


TENSORS: Final = (
    Column("session>", lambda one: one["session"] or ""),
    Column("id>", lambda one: one["id"] or ""),
    Column("names", lambda one: ", ".join(one["names"]), folds=True),
    Column("what", lambda one: shape(one["shape"], one["dtype"]), folds=True),
    Column("bytes>", lambda one: size(one["bytes"])),
    Column("home", itemgetter("home")),
    Column("copies", _copies, folds=True, spare=5),
    Column("version>", itemgetter("version"), spare=1),
    Column("held>", lambda one: one["holders"] if one["holders"] > 1 else "", spare=2),
    Column("made by", lambda one: f"{one['op']} {one['of']}".rstrip(), folds=True, spare=4),
    Column("location", itemgetter("location"), folds=True, spare=3),
    Column("remark", _tensor_remark, folds=True, spare=6),
)


# -- names -------------------------------------------------------------------------------------------------------------


def show_names(found: Iterable[Mapping[str, Any]], *, kind: str | None) -> None:
    """Show a table of names."""
    print_table(NAMES, map(_name, found), empty=f"no {kind or 'tensor or routine'} has a name")


def _name(one: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a name: texts by column."""
    if one["kind"] != "routine":
        return {**one, "what": shape(one["shape"], one["dtype"]), "bytes": size(one["bytes"])}
    held = one["tensors"]
    return {
        "name": one["name"],
        "what": f"routine of {plural(one['ops'], 'op')}, captures {plural(len(held), 'tensor')}",
        "bytes": size(sum(each["bytes"] or 0 for each in held)) if held else "",
        "home": ", ".join(one["devices"]),
        "takes": ", ".join([*one["parameters"], *one["numbers"]]) or "nothing",
        "results": one["results"],
        "program": one["program"][:12],
    }


NAMES: Final = (
    Column("name", folds=True),
    Column("what", folds=True),
    Column("bytes>", spare=2),
    Column("home"),
    Column("takes", folds=True),
    Column("results>", spare=3),
    Column("program", spare=1),
)


# -- devices -----------------------------------------------------------------------------------------------------------


def show_devices(found: Iterable[Mapping[str, Any]]) -> None:
    """Show each device."""
    for one in found:
        _show_device(one)


def _show_device(one: Mapping[str, Any]) -> None:
    memory = one["memory"]
    waiting = f", {plural(memory['waiting'], 'instruction')} waiting for memory" if memory["waiting"] else ""
    print(plain(f"{one['name']}{'  LOST: ' + one['lost'] if one['lost'] else ''}"))
    print(
        f"  memory     {size(memory['used'])} used of {size(memory['limit'])}, {size(memory['cached'])} cached, "
        f"{size(memory['planned'])} planned{waiting}"
    )
    listed = (
        ("transfers", moved(one["transfers"])),
        ("evicted", evicted(one["eviction"])),
        ("peers", ", ".join(one["peers"])),
        ("missing", ", ".join(one["missing"])),
        ("options", options(one["options"] or {})),
    )
    for name, text in listed:
        if text:
            print(f"  {name:<9}  {text}")
    streams = {stream["name"].removeprefix(f"{one['name']}/"): doing(stream) for stream in one["streams"]}
    for name, text in streams.items():
        if text != _IDLE:
            print(f"  {name:<9}  {text}")
    idle = ", ".join(name for name, text in streams.items() if text == _IDLE)
    if idle:
        print(f"  idle       {idle}")


def options(given: Mapping[str, Any]) -> str:
    """`workers=2, memory=...`, without options that are empty or shown elsewhere."""
    nothing: tuple[object, ...] = ([], (), "", None)
    shown = {name: value for name, value in given.items() if value not in nothing and name != "missing"}
    bytes_of = ("memory", "cache", "floor", "ceiling", "quota", "reserve", "pinned")
    return ", ".join(
        f"{name}={size(value) if name in bytes_of and isinstance(value, int) else value}"
        for name, value in shown.items()
    )


def doing(stream: Mapping[str, Any]) -> str:
    """What a stream does: `idle`, or the running instruction, for how long, and how many are queued behind it."""
    queued = stream["queued"] + stream["backlog"]
    now = stream["running"]
    if now is None:
        return f"{count(queued)} queued" if queued else _IDLE
    place = f" [{now['location']}]" if now["location"] else ""
    behind = f", {count(queued - 1)} behind it" if queued > 1 else ""
    return f"#{now['instruction']} {now['op']} for {duration(now['seconds'])}{behind}{place}"
