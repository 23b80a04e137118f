"""Rows of memory by holder: their grouping, and that their total is the total of the pools."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.vm.reporting.memory.held import HOLDERS_SHOWN, KEYS, Sums, by_what, held_slices
from tensord.vm.tracing.flat import SourceLocation
from tests.vm.bare_engine import Bare
from tests.vm.parts import Parts

from ....each_case import each_case


@pytest.fixture
def bare():
    return Bare()


def asked(engine, by, limit=50, on=""):
    """The rows, and the total."""

    def where(session, location):
        found = engine.directory.sessions.get(session)
        return SourceLocation() if found is None else SourceLocation(found.source.where(location) or "", ())

    def about(session):
        found = engine.directory.sessions.get(session)
        return None if found is None else found.name

    *rows, total = (row for part in held_slices(engine, Sums(by, on), limit, where, about) for row in part)
    assert total["by"] == by
    assert sum(row["bytes"] for row in rows) == total["total"]
    assert all(pool["unaccounted"] == 0 for pool in total["pools"])
    assert total["still"]
    return rows, total


def two_sessions(bare):
    """A publisher of 64 bytes with 8 more, and a session that has looked them up and made 16."""
    maker, user = bare.client(), bare.client()
    maker.publish("w", ids=[maker.upload(np.ones(8))])
    maker.upload(np.ones(1))
    user.lookup("w")
    user.upload(np.ones(2))
    return maker, user


def test_by_session_bytes_are_of_who_made_them_and_say_who_holds_them(bare):
    maker, user = two_sessions(bare)
    (first, second), total = asked(bare.engine, "session")
    assert (first["key"], first["bytes"], first["count"]) == (str(maker.session.id), 72, 2)
    assert (set(first["sessions"]), first["names"]) == ({maker.session.id, user.session.id}, ["w"])
    assert (second["key"], second["bytes"], second["sessions"]) == (str(user.session.id), 16, [user.session.id])
    assert total["freed"] == {str(maker.session.id): {"cpu:0": 8}, str(user.session.id): {"cpu:0": 16}}


def test_by_session_one_that_has_ended_says_so(bare):
    maker, user = two_sessions(bare)
    bare.engine.close(maker.session)
    bare.drain()
    (first, second), _ = asked(bare.engine, "session")
    assert (first["key"], first["bytes"], first["ended"]) == (str(maker.session.id), 64, True)
    assert (first["sessions"], second["ended"]) == ([user.session.id], False)


def test_by_name_the_first_name_counts_and_the_rest_has_none(bare):
    client = bare.client()
    x = client.upload(np.ones(8))
    client.publish("b", "a", ids=[x, x])
    client.upload(np.ones(1))
    rows, _ = asked(bare.engine, "name")
    assert [(row["key"], row["bytes"], row["names"]) for row in rows] == [("b", 64, ["b", "a"]), ("", 8, [])]


def test_by_device_there_is_a_row_for_each_thing_that_bytes_are_for():
    parts = Parts("cpu:0", "sim:0")
    parts.tensor(8)
    x = parts.tensor(4, "sim:0")
    parts.op(reads=[x], on="sim:0")
    parts.release(x)
    rows, total = asked(parts.engine, "device")
    assert [(row["key"], row["what"], row["bytes"]) for row in rows] == [
        ("cpu:0", "tensor", 64),
        ("sim:0", "stream", 32),
    ]
    assert [(pool["device"], pool["allocated"]) for pool in total["pools"]] == [("cpu:0", 64), ("sim:0", 32)]
    rows, total = asked(parts.engine, "device", on="sim:0")
    assert [row["key"] for row in rows] == ["sim:0"]
    assert total["total"] == 32


def test_by_location_one_line_of_two_sessions_is_one_row(bare):
    two_sessions(bare)
    ((row),), _ = asked(bare.engine, "location")
    assert (row["key"], row["bytes"], row["count"]) == ("user.py:1", 88, 3)


def test_what_has_no_line_or_no_session_is_a_row_without_a_key():
    parts = Parts()
    x = parts.tensor(8)
    parts.op(reads=[x])
    parts.release(x)
    for by in ("location", "session"):
        ((row),), _ = asked(parts.engine, by)
        assert (row["key"], row["bytes"]) == ("", 64)


@pytest.mark.parametrize(("limit", "keys", "rest"), [(1, ["a"], 3), (3, ["a", "b", "c"], 1), (0, [], 4)])
def test_what_is_beyond_the_limit_is_summed_up_in_one_row(bare, limit, keys, rest):
    client = bare.client()
    names = ("a", "b", "c", "d")
    client.publish(*names, ids=[client.upload(np.ones(10 - n)) for n in range(4)])
    rows, total = asked(bare.engine, "name", limit)
    assert [row["key"] for row in rows] == [*keys, ""]
    assert (rows[-1]["rest"], rows[-1]["count"], total["groups"]) == (rest, rest, 4)


def test_a_row_tells_of_its_oldest_and_its_youngest_piece_and_of_errors(bare):
    client = bare.client()
    client.upload(np.ones(1))
    bare.now += 10**9
    client.upload(np.ones(1))
    client.call("negative", 404)
    bare.now += 10**9
    rows, _ = asked(bare.engine, "device")
    (row,) = rows
    assert (round(row["age"]), round(row["youngest"])) == (2, 1)
    assert (row["poisoned"], round(row["poisoned_age"])) == (1, 1)


def test_a_row_names_some_holders_and_counts_all(bare):
    client = bare.client()
    names = tuple(f"w{n:02}" for n in range(HOLDERS_SHOWN + 5))
    client.publish(*names, ids=[client.upload(np.ones(1))] * len(names))
    ((row),), _ = asked(bare.engine, "session")
    assert (row["names"], row["names_in_all"]) == (list(names[:HOLDERS_SHOWN]), len(names))


def test_what_happens_during_a_long_walk_is_told_apart(bare):
    client = bare.client()
    for _ in range(600):
        client.upload(np.ones(1))
    slices = held_slices(bare.engine, Sums("session"), 50, lambda *_: SourceLocation(), lambda _: "")
    next(slices)
    client.release(1)
    *rows, total = (row for part in slices for row in part)
    (pool,) = total["pools"]
    assert not total["still"]
    assert sum(row["bytes"] for row in rows) + pool["unaccounted"] == total["total"] == 599 * 8


@each_case("by", ["", "colour", 3, None, ["session"]])
def test_only_what_there_is_can_be_summed_up_by(by):
    with pytest.raises(ProtocolError, match="memory is summed up by session, name, device, location, not by"):
        by_what(by)


def test_each_thing_to_sum_up_by_is_named():
    assert [by_what(by) for by in KEYS] == ["session", "name", "device", "location"]
