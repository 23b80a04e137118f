"""A running daemon's status and devices as texts and tables. `admin` asks for them."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from ..drawing.figures import count, duration, plural, size
from ..drawing.tables import Column, plain, print_table

_ERRORS_SHOWN = 5
_IDLE = "idle"


# -- status ------------------------------------------------------------------------------------------------------------


def show_status(status: Mapping[str, Any]) -> None:
    for line in summary(status):
        print(line)
    rows = ({"name": name, "moved": status["transfers"][name], **one} for name, one in status["devices"].items())
    print_table(MEMORY, rows)
    _show_troubles(status)


def summary(status: Mapping[str, Any]) -> list[str]:
    done, trace = status["instructions"], status["trace"]
    ring = f"{count(trace['records'])} of {count(trace['capacity'])} records, {count(trace['dropped'])} older ones lost"
    ended = f"{count(done['retired'])} done, {count(done['failed'])} of them failed"
    files = status["descriptors"]
    taken = f"{size(status['memory'])} of memory, {count(files['open'])} of {count(files['limit'])} open files"
    process = f"{status['pid']}, up {duration(status['uptime'])}, {taken}"
    held = f"{plural(status['tensors'], 'tensor')}; {plural(status['names'], 'published name')}"
    return [
        f"tensord {status['version']} at {status['address']}",
        f"  process       {process}",
        f"  sessions      {count(status['sessions'])} with {held}",
        f"  instructions  {ended}; {count(done['live'])} live, {count(done['pending'])} pending",
        f"  trace         {ring if trace['enabled'] else 'off'}",
        *(
            f"  checkpoint    {size(one['written'])} of {size(one['bytes'])} written to {one['directory']}"
            for one in status["checkpoints"]
        ),
    ]


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


def evicted(eviction: Mapping[str, Any]) -> str:
    """`12 to cpu:0, 3 MiB; 4 dropped, 1 MiB; 9 back, 2 MiB; 1 MiB pinned`, without the parts that are zero."""
    parts = (("evicted", f"to {eviction['below']}"), ("dropped", "dropped"), ("returned", "back"))
    texts = [
        f"{count(eviction[name]['count'])} {what}, {size(eviction[name]['bytes'])}"
        for name, what in parts
        if eviction[name]["count"]
    ]
    if eviction["pinned"]:
        texts.append(f"{size(eviction['pinned'])} pinned")
    return "; ".join(texts)


def _show_troubles(status: Mapping[str, Any]) -> None:
    for kernel in status["hung"]:
        line = f", called at {kernel['location']}" if kernel.get("location") else ""
        since = duration(kernel["seconds"])
        print(plain(f"hangs: #{kernel['instruction']} {kernel['op']} on {kernel['stream']} for {since}{line}"))
    errors = status["recent_errors"]
    for error in errors[-_ERRORS_SHOWN:]:
        line = f" [{error['location']}]" if error.get("location") else ""
        number = f"#{error['instruction']} " if error.get("instruction") else ""
        print(plain(f"error: {number}{error['type']}: {error['message']}{line}"))
    if len(errors) > _ERRORS_SHOWN:
        print(f"and {len(errors) - _ERRORS_SHOWN} earlier errors; --json lists them")


# -- devices -----------------------------------------------------------------------------------------------------------


def show_devices(devices: Iterable[Mapping[str, Any]]) -> None:
    for device in devices:
        _show_device(device)


def _show_device(device: Mapping[str, Any]) -> None:
    memory = device["memory"]
    waiting = f", {plural(memory['waiting'], 'instruction')} waiting for memory" if memory["waiting"] else ""
    print(plain(f"{device['name']}{'  LOST: ' + device['lost'] if device['lost'] else ''}"))
    print(
        f"  memory     {size(memory['used'])} used of {size(memory['limit'])}, {size(memory['cached'])} cached, "
        f"{size(memory['planned'])} planned{waiting}"
    )
    listed = (
        ("transfers", moved(device["transfers"])),
        ("evicted", evicted(device["eviction"])),
        ("peers", ", ".join(device["peers"])),
        ("missing", ", ".join(device["missing"])),
        ("options", options(device["options"] or {})),
    )
    for name, text in listed:
        if text:
            print(f"  {name:<9}  {text}")
    streams = {stream["name"].removeprefix(f"{device['name']}/"): doing(stream) for stream in device["streams"]}
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
    """The work of a stream: `idle`, or the running instruction, its running time, and the number of waiting ones."""
    queued = stream["queued"] + stream["backlog"]
    now = stream["running"]
    if now is None:
        return f"{count(queued)} queued" if queued else _IDLE
    line = f" [{now['location']}]" if now["location"] else ""
    behind = f", {count(queued - 1)} behind it" if queued > 1 else ""
    return f"#{now['instruction']} {now['op']} for {duration(now['seconds'])}{behind}{line}"
