"""Tables of a running daemon's sessions, tensors and names, and of the holders of its memory."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from ..drawing.figures import count, duration, plural, shape, size, some
from ..drawing.tables import Column, print_table

# -- sessions ----------------------------------------------------------------------------------------------------------


def show_sessions(sessions: Sequence[Mapping[str, Any]]) -> None:
    print_table(SESSIONS, sessions, caption=plural(len(sessions), "session"))


def session_remark(session: Mapping[str, Any]) -> str:
    remarks = [
        "cancelled" if session["cancelled"] else "",
        session["state"] if session["state"] != "open" else "",
        "strict" if session["strict"] else "",
        *_shares_of(session),
        "this command" if session["asks"] else "",
    ]
    return ", ".join(filter(None, remarks))


def _shares_of(session: Mapping[str, Any]) -> list[str]:
    """The memory that a session holds on each device with a ceiling."""
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


def show_tensors(tensors: Sequence[Mapping[str, Any]], *, limit: int, session: int, device: str) -> None:
    print_table(
        TENSORS,
        tensors,
        caption=f"the {plural(len(tensors), 'tensor')} shown are the largest" if len(tensors) == limit else "",
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


def show_names(names: Iterable[Mapping[str, Any]], *, kind: str | None) -> None:
    print_table(NAMES, map(_name, names), empty=f"no {kind or 'tensor or routine'} is published")


def _name(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a name: texts by column."""
    if row["kind"] != "routine":
        return {**row, "what": shape(row["shape"], row["dtype"]), "bytes": size(row["bytes"])}
    held = row["tensors"]
    return {
        "name": row["name"],
        "what": f"routine of {plural(row['ops'], 'op')}, captures {plural(len(held), 'tensor')}",
        "bytes": size(sum(each["bytes"] or 0 for each in held)) if held else "",
        "home": ", ".join(row["devices"]),
        "takes": ", ".join([*row["parameters"], *row["numbers"]]) or "nothing",
        "results": row["results"],
        "program": row["program"][:12],
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


# -- holders of memory -------------------------------------------------------------------------------------------------

NOBODY: Final = {"session": "(no session)", "name": "(no name)", "location": "(no line)", "device": ""}
TENSOR: Final = "tensor"  # the kind of most bytes


def show_held(held: Mapping[str, Any]) -> None:
    """Show a row for each holder, the total of the pools, and below that the state of each pool."""
    by, total, pools = held["by"], held["total"], held["pools"]
    rows = [_row(one, by, total) for one in held["rows"]]
    apart = sum(pool["unaccounted"] for pool in pools)
    if apart:
        when = "unexplained" if held["still"] else "taken or freed while this was counted"
        rows.append({by: f"({when})", "bytes": _signed(apart)})
    rows.append({by: "total", "bytes": size(total)})
    print_table([Column(by, folds=True), *COLUMNS], rows)
    for pool in pools:
        print("; ".join(_pool(pool)))


def _row(held: Mapping[str, Any], by: str, total: int) -> dict[str, str]:
    key = f"({count(held['rest'])} more; --limit 0 lists all)" if held["rest"] else held["key"] or NOBODY[by]
    sorts = {} if by == "device" or set(held["sorts"]) <= {TENSOR} else held["sorts"]
    where = {} if by == "device" else held["devices"]
    return {
        by: key,
        "what": held["what"] or _amounts(sorts),
        "bytes": size(held["bytes"]),
        "of all": f"{held['bytes'] / total:.1%}" if total else "",
        "pieces": count(held["count"]),
        "age": "" if held["age"] is None else duration(held["age"]),
        "where": next(iter(where)) if len(where) == 1 else _amounts(where),
        "held by": _holders(held),
        "remark": ", ".join(_remarks(held)),
    }


COLUMNS: Final = (
    Column("what", folds=True),
    Column("bytes>"),
    Column("of all>", spare=3),
    Column("pieces>", spare=1),
    Column("age>"),
    Column("where", folds=True, spare=2),
    Column("held by", folds=True),
    Column("remark", folds=True),
)


def _amounts(parts: Mapping[str, int]) -> str:
    """`sim:0 4 MiB, cpu:0 1 KiB`, the largest first."""
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in sorted(parts.items(), key=lambda item: -item[1]))


def _holders(held: Mapping[str, Any]) -> str:
    """`session 1, 2; weights, bias and 3 more`."""
    sessions = _listed([str(id_) for id_ in held["sessions"]], held["sessions_in_all"])
    names = _listed(held["names"], held["names_in_all"])
    return "; ".join(filter(None, [f"session {sessions}" if sessions else "", names]))


def _listed(shown: Sequence[str], in_all: int) -> str:
    more = in_all - len(shown)
    return ", ".join(shown) + (f" and {count(more)} more" if more else "")


def _remarks(held: Mapping[str, Any]) -> Iterator[str]:
    if held["ended"]:
        yield "ended"
    if held["poisoned"]:
        since = "" if held["poisoned_age"] is None else f", since {duration(held['poisoned_age'])}"
        yield f"{plural(held['poisoned'], 'value')} with an error{since}"


def _pool(pool: Mapping[str, Any]) -> Iterator[str]:
    """The state of a pool, and bytes that are in no total."""
    yield f"{pool['device']}: {size(pool['allocated'])} of {size(pool['limit'])}"
    if pool["rounding"]:
        yield f"its blocks have {size(pool['rounding'])} more"
    if pool["cached"]:
        blocks = plural(pool["cached_blocks"], "block")
        yield f"{size(pool['cached'])} cached in {blocks}, the largest of {size(pool['largest_cached'])}"
    if pool["run_arena"]:
        yield f"{size(pool['run_arena'])} for small runs, which no limit counts"
    for idle in pool["idle_arenas"]:
        yield f"{size(idle['bytes'])} kept for the next run of {idle['routine'] or 'a routine'}"


def _signed(nbytes: int) -> str:
    return f"-{size(-nbytes)}" if nbytes < 0 else size(nbytes)
