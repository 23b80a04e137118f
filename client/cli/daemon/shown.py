"""What a running daemon has and does, as people read it; `admin` says what is asked."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ....interpreter.errors import TensordError
from ..drawing.figures import count, duration, plural, shape, size
from ..drawing.tables import plain
from ..line.output import print_json
from .ask import ask

_ERRORS_SHOWN = 5
_IDLE = "idle"


def tell(what: str, address: str | None, arguments: Sequence[Any] = (), *, as_json: bool, wait: float = 0.0) -> None:
    """Ask the daemon, and show the answer."""
    found = ask(address, what, *arguments, wait=wait)
    if as_json:
        print_json(found)
    else:
        SHOWN[what](found, *arguments)


def tell_health(address: str | None, wait: float, *, as_json: bool) -> int:
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
    if as_json:
        print_json({"state": state, "reasons": [reason._asdict() for reason in found]})
    else:
        print(state)
        for reason in found:
            print(plain(f"{reason.check}: {reason.message} ({reason.advice})"))
    return {"healthy": HEALTHY, "needs a look": NEEDS_A_LOOK, "unreachable": UNREACHABLE}[state]


def show_status(found: Mapping[str, Any]) -> None:
    """Show counters, the memory of devices, and troubles."""
    for line in summary(found):
        print(line)
    _show_device_memory(found)
    _show_troubles(found)


def tell_held(address: str | None, by: str, limit: int, device: str, *, as_json: bool) -> None:
    """Ask the daemon who holds the memory of its devices, and show the answer."""
    from ...requests.held import whole
    from .held import show_held

    found = whole(ask(address, "memory", by, limit, device))
    if as_json:
        print_json(found)
    else:
        show_held(found)


def show_sessions(found: Sequence[Mapping[str, Any]], _freed: bool = True) -> None:
    """Show a table of sessions."""
    from ..drawing.tables import print_table

    columns = ("id>", "name", "pid>", "via", "age>", "tensors>", "bytes>", "peak>", "alone>", "moved>", "evicted>")
    print_table(
        (*columns, "live>", "pending>", "errors>", "names>", "remark"),
        [_session_row(one) for one in found],
        caption=plural(len(found), "session"),
        folded=("name", "remark"),
        spare=("age>", "names>", "via", "errors>", "peak>", "moved>", "evicted>"),
    )


def show_tensors(found: Sequence[Mapping[str, Any]], limit: int, session: int = 0, device: str = "") -> None:
    """Show a table of tensors, `limit` at the most."""
    from ..drawing.tables import print_table

    columns = ("session>", "id>", "names", "what", "bytes>", "home", "copies", "version>", "held>", "made by")
    print_table(
        (*columns, "location", "remark"),
        [_tensor_row(one) for one in found],
        caption=f"the {plural(len(found), 'tensor')} shown are the largest" if len(found) == limit else "",
        folded=("names", "what", "copies", "made by", "location", "remark"),
        spare=("version>", "held>", "location", "made by"),
        empty=f"no tensors{f' of session {session}' if session else ''}{f' on {device}' if device else ''}",
    )


def show_names(found: Sequence[Mapping[str, Any]], _limit: int = 0, kind: str = "") -> None:
    """Show a table of names."""
    from ..drawing.tables import print_table

    print_table(
        ("name", "what", "bytes>", "home", "takes", "results>", "program"),
        [_routine_name(one) if one["kind"] == "routine" else _tensor_name(one) for one in found],
        folded=("name", "what", "takes"),
        spare=("program", "bytes>", "results>"),
        empty=f"no {kind or 'tensor or routine'} has a name",
    )


def _tensor_name(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (one["name"], shape(one["shape"], one["dtype"]), size(one["bytes"]), one["home"], "", "", "")


def _routine_name(one: Mapping[str, Any]) -> tuple[str, ...]:
    held = one["tensors"]
    takes = ", ".join([*one["parameters"], *one["numbers"]]) or "nothing"
    what = f"routine of {plural(one['ops'], 'op')}, captures {plural(len(held), 'tensor')}"
    nbytes = sum(each["bytes"] or 0 for each in held)
    return (
        one["name"],
        what,
        size(nbytes) if held else "",
        ", ".join(one["devices"]),
        takes,
        str(one["results"]),
        one["program"][:12],
    )


def show_devices(found: Sequence[Mapping[str, Any]]) -> None:
    """Show each device."""
    for one in found:
        _show_device(one)


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


def _show_device_memory(found: Mapping[str, Any]) -> None:
    from ..drawing.tables import print_table

    rows = [
        (
            name,
            size(one["used"]),
            size(one["limit"]),
            size(one["cached"]),
            moved(found["transfers"][name]),
            evicted(one["eviction"]),
            one["lost"],
        )
        for name, one in found["devices"].items()
    ]
    folded = ("moved", "evicted", "lost")
    print_table(("device", "used>", "of>", "cached>", "moved", "evicted", "lost"), rows, folded=folded)


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


def _session_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (count(one[name]) if one[name] else "" for name in ("live", "pending", "errors", "names"))
    remarks = [
        "cancelled" if one["cancelled"] else "",
        one["state"] if one["state"] != "open" else "",
        "strict" if one["strict"] else "",
        *shares_of(one),
        "this command" if one["asks"] else "",
    ]
    head = (str(one["id"]), one["name"], str(one["pid"] or ""), one["kind"], duration(one["age"]))
    caused = (one["moved"]["bytes"], one["evicted"]["bytes"])
    amounts = (one["bytes"], one["peak"], sum(one["freed"].values()), *caused)
    held = (count(one["tensors"]), *(size(nbytes) if nbytes else "" for nbytes in amounts))
    return (*head, *held, *numbers, ", ".join(filter(None, remarks)))


def shares_of(session: Mapping[str, Any]) -> list[str]:
    """What a session has on each device that has a ceiling, if it has anything there."""
    return [
        f"{size(share['bytes'])} of {size(share['ceiling'])} on {name}"
        for name, share in session["shares"].items()
        if share["bytes"]
    ]


def _tensor_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    copies = ", ".join(where if state == "valid" else f"{where} {state}" for where, state in one["residency"].items())
    shared = one["sharers"] > 1
    remarks = [
        "view" if one["view"] else "",
        f"shares {size(one['storage_bytes'])} (copy {one['storage']})" if shared else "",
        one["error"],
    ]
    return (
        str(one["session"] or ""),
        str(one["id"] or ""),
        ", ".join(one["names"]),
        shape(one["shape"], one["dtype"]),
        size(one["bytes"]),
        one["home"],
        copies,
        str(one["version"]),
        str(one["holders"]) if one["holders"] > 1 else "",
        f"{one['op']} {one['of']}".rstrip(),
        one["location"],
        ", ".join(filter(None, remarks)),
    )


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


SHOWN: Final[dict[str, Callable[..., None]]] = {
    "status": show_status,
    "sessions": show_sessions,
    "tensors": show_tensors,
    "names": show_names,
    "devices": show_devices,
}
