"""`tensord status`, `sessions`, `tensors`, `devices`: what a running daemon has and does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .ask import Address, Json, ask, print_json
from .figures import count, duration, plural, shape, size

_ERRORS_SHOWN = 5
_IDLE = "idle"


def add(app: typer.Typer) -> None:
    """Register the commands."""
    for command in (status, sessions, tensors, devices):
        app.command()(command)


def status(address: Address = None, as_json: Json = False) -> None:
    """Show the daemon's health: memory, instructions, hanging kernels.

    Also recent errors, with the lines of your programs that caused them.

    Example: tensord status
    """
    found = ask(address, "status")
    if as_json:
        print_json(found)
        return
    for line in summary(found):
        typer.echo(line)
    _show_device_memory(found)
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
    ]


def _show_device_memory(found: Mapping[str, Any]) -> None:
    from .terminal import print_table

    rows = [
        (name, size(one["used"]), size(one["limit"]), size(one["cached"]), moved(found["transfers"][name]), one["lost"])
        for name, one in found["devices"].items()
    ]
    print_table(("device", "used>", "of>", "cached>", "moved", "lost"), rows, folded=("moved", "lost"))


def moved(transfers: Mapping[str, Mapping[str, int]]) -> str:
    """`h2d 3 x, 12 MiB; d2h ...`."""
    return "; ".join(f"{kind} {count(one['count'])} x, {size(one['bytes'])}" for kind, one in transfers.items())


def _show_troubles(found: Mapping[str, Any]) -> None:
    for one in found["hung"]:
        place = f", called at {one['location']}" if one.get("location") else ""
        since = duration(one["seconds"])
        typer.echo(f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {since}{place}")
    errors = found["recent_errors"]
    for error in errors[-_ERRORS_SHOWN:]:
        place = f" [{error['location']}]" if error.get("location") else ""
        number = f"#{error['instruction']} " if error.get("instruction") else ""
        typer.echo(f"error: {number}{error['type']}: {error['message']}{place}")
    if len(errors) > _ERRORS_SHOWN:
        typer.echo(f"and {len(errors) - _ERRORS_SHOWN} earlier errors; --json lists them")


def sessions(address: Address = None, as_json: Json = False) -> None:
    """List the connected sessions and what they hold.

    Example: tensord sessions --json | jq '.[] | select(.errors > 0)'
    """
    from .terminal import print_table

    found = ask(address, "sessions")
    if as_json:
        print_json(found)
        return
    columns = ("id>", "name", "pid>", "via", "age>", "tensors>", "bytes>", "live>", "pending>", "errors>", "names>")
    print_table(
        (*columns, "remark"),
        [_session_row(one) for one in found],
        caption=plural(len(found), "session"),
        folded=("name", "remark"),
        spare=("age>", "names>", "via", "errors>"),
    )


def _session_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (count(one[name]) if one[name] else "" for name in ("live", "pending", "errors", "names"))
    remarks = [
        "cancelled" if one["cancelled"] else "",
        one["state"] if one["state"] != "open" else "",
        "strict" if one["strict"] else "",
        "this command" if one["asks"] else "",
    ]
    head = (str(one["id"]), one["name"], str(one["pid"] or ""), one["kind"], duration(one["age"]))
    held = (count(one["tensors"]), size(one["bytes"]) if one["bytes"] else "")
    return (*head, *held, *numbers, ", ".join(filter(None, remarks)))


def tensors(
    address: Address = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Only this many, the largest ones.")] = 20,
    session: Annotated[int, typer.Option(min=0, help="Only those of this session; 0 for all.")] = 0,
    device: Annotated[str, typer.Option(help="Only those with their home or a copy there.")] = "",
    as_json: Json = False,
) -> None:
    """List the largest tensors, and where their copies are.

    Example: tensord tensors --device cuda:0 --limit 10
    """
    from .terminal import print_table

    found = ask(address, "tensors", limit, session, device)
    if as_json:
        print_json(found)
        return
    columns = ("session>", "id>", "names", "what", "bytes>", "home", "copies", "version>", "held>", "made by")
    print_table(
        (*columns, "location", "remark"),
        [_tensor_row(one) for one in found],
        caption=f"the {plural(len(found), 'tensor')} shown are the largest" if len(found) == limit else "",
        folded=("names", "what", "copies", "location", "remark"),
        spare=("version>", "held>", "location", "made by"),
    )


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
        one["op"],
        one["location"],
        ", ".join(filter(None, remarks)),
    )


def devices(address: Address = None, as_json: Json = False) -> None:
    """Show each device and what its streams do.

    Example: tensord devices
    """
    found = ask(address, "devices")
    if as_json:
        print_json(found)
        return
    for one in found:
        _show_device(one)


def _show_device(one: Mapping[str, Any]) -> None:
    memory = one["memory"]
    waiting = f", {plural(memory['waiting'], 'instruction')} waiting for memory" if memory["waiting"] else ""
    typer.echo(f"{one['name']}{'  LOST: ' + one['lost'] if one['lost'] else ''}")
    typer.echo(
        f"  memory     {size(memory['used'])} used of {size(memory['limit'])}, {size(memory['cached'])} cached, "
        f"{size(memory['planned'])} planned{waiting}"
    )
    listed = (
        ("transfers", moved(one["transfers"])),
        ("peers", ", ".join(one["peers"])),
        ("missing", ", ".join(one["missing"])),
        ("options", options(one["options"] or {})),
    )
    for name, text in listed:
        if text:
            typer.echo(f"  {name:<9}  {text}")
    streams = {stream["name"].removeprefix(f"{one['name']}/"): doing(stream) for stream in one["streams"]}
    for name, text in streams.items():
        if text != _IDLE:
            typer.echo(f"  {name:<9}  {text}")
    idle = ", ".join(name for name, text in streams.items() if text == _IDLE)
    if idle:
        typer.echo(f"  idle       {idle}")


def options(given: Mapping[str, Any]) -> str:
    """`workers=2, memory=...`, without options that are empty or shown elsewhere."""
    nothing: tuple[object, ...] = ([], (), "", None)
    shown = {name: value for name, value in given.items() if value not in nothing and name != "missing"}
    bytes_of = ("memory", "cache")
    return ", ".join(f"{name}={size(value) if name in bytes_of else value}" for name, value in shown.items())


def doing(stream: Mapping[str, Any]) -> str:
    """What a stream does: `idle`, or the running instruction, for how long, and how many are queued behind it."""
    queued = stream["queued"] + stream["backlog"]
    now = stream["running"]
    if now is None:
        return f"{count(queued)} queued" if queued else _IDLE
    place = f" [{now['location']}]" if now["location"] else ""
    behind = f", {count(queued - 1)} behind it" if queued > 1 else ""
    return f"#{now['instruction']} {now['op']} for {duration(now['seconds'])}{behind}{place}"
