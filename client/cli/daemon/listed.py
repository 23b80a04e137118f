"""What a running daemon has, as tables: sessions, tensors, names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from ..drawing.figures import count, duration, plural, shape, size, some
from ..drawing.tables import Column, print_table

# -- sessions ----------------------------------------------------------------------------------------------------------


def show_sessions(found: Sequence[Mapping[str, Any]]) -> None:
    print_table(SESSIONS, found, caption=plural(len(found), "session"))


def session_remark(one: Mapping[str, Any]) -> str:
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
