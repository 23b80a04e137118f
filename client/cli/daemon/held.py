"""`tensord tensors --by`: who holds the memory of the devices, as people read it."""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..drawing.figures import count, duration, plural, size
from ..drawing.tables import Column, print_table

NOBODY: Final = {"session": "(no session)", "name": "(no name)", "location": "(no line)", "device": ""}
TENSOR: Final = "tensor"  # what most bytes are for


def show_held(found: Mapping[str, Any]) -> None:
    """Show the rows, with a last one that is what the pools have allocated, and below them what the pools are like."""
    by, total, pools = found["by"], found["total"], found["pools"]
    rows = [_row(one, by, total) for one in found["rows"]]
    apart = sum(pool["unaccounted"] for pool in pools)
    if apart:
        when = "unexplained" if found["still"] else "taken or freed while this was counted"
        rows.append({by: f"({when})", "bytes": _signed(apart)})
    rows.append({by: "total", "bytes": size(total)})
    print_table([Column(by, folds=True), *COLUMNS], rows)
    for pool in pools:
        print("; ".join(_pool(pool)))


def _row(one: Mapping[str, Any], by: str, total: int) -> dict[str, str]:
    key = f"({count(one['rest'])} more; --limit 0 lists all)" if one["rest"] else one["key"] or NOBODY[by]
    sorts = {} if by == "device" or set(one["sorts"]) <= {TENSOR} else one["sorts"]
    where = {} if by == "device" else one["devices"]
    return {
        by: key,
        "what": one["what"] or _amounts(sorts),
        "bytes": size(one["bytes"]),
        "of all": f"{one['bytes'] / total:.1%}" if total else "",
        "pieces": count(one["count"]),
        "age": "" if one["age"] is None else duration(one["age"]),
        "where": next(iter(where)) if len(where) == 1 else _amounts(where),
        "held by": _holders(one),
        "remark": ", ".join(_remarks(one)),
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


def _holders(one: Mapping[str, Any]) -> str:
    """`session 1, 2; weights, bias and 3 more`."""
    sessions = _listed([str(id_) for id_ in one["sessions"]], one["sessions_in_all"])
    names = _listed(one["names"], one["names_in_all"])
    return "; ".join(filter(None, [f"session {sessions}" if sessions else "", names]))


def _listed(shown: Sequence[str], in_all: int) -> str:
    more = in_all - len(shown)
    return ", ".join(shown) + (f" and {count(more)} more" if more else "")


def _remarks(one: Mapping[str, Any]) -> Iterator[str]:
    if one["ended"]:
        yield "ended"
    if one["poisoned"]:
        since = "" if one["poisoned_age"] is None else f", since {duration(one['poisoned_age'])}"
        yield f"{plural(one['poisoned'], 'value')} with an error{since}"


def _pool(pool: Mapping[str, Any]) -> Iterator[str]:
    """What a pool has, and besides it what no total counts."""
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
