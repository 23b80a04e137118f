"""Routines under names in an engine: refusals and answers."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import MetadataError, ProtocolError, QuotaError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.convention import decode
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import RecordsReader
from tensord.interpreter.wire.messages import Location, Lookup, Publish
from tensord.interpreter.wire.program_messages import Convention
from tensord.vm.routines.programs import RECORDS

from ..bare_engine import Bare, Client
from ..programs import LINE, ONE, accumulate, chain_of, link

CALLED = ("f", ("x",), (("parameter", 0, None),), (), (), ("result", 0, None))


@pytest.fixture
def bare() -> Bare:
    return Bare()


@pytest.fixture
def client(bare: Bare) -> Client:
    return bare.client()


def capturing() -> Program:
    """(x; captured w): x + w."""
    builder = Builder()
    x, w = builder.parameter(ONE), builder.captured(ONE)
    return builder.finish(list(builder.op("add", [x, w], location=LINE)))


def told_of(client: Client, *names: str, count: int) -> list[Any]:
    """The arrays of the answer to a lookup of these names."""
    found = client.ask(Lookup(names, tuple(client.new() for _ in range(count)), 0, False))
    return [each for part in found for each in part]


@pytest.mark.parametrize(
    ("ids", "error", "said"),
    [
        (lambda c: [c.new()], ProtocolError, "was never defined"),
        (lambda c: [link(c, accumulate(), [c.upload([1.0])])], MetadataError, "calls functions of its publisher"),
        (lambda c: [link(c, capturing(), [])], ProtocolError, "0.* captured tensors"),
        (lambda c: [link(c, capturing(), [c.upload([1.0, 2.0])])], ProtocolError, r"captures float64\[2\], but"),
        (lambda c: [link(c, capturing(), [99])], ProtocolError, "tensor 99"),
        (lambda c: [c.upload([1.0]), link(c, chain_of(1), keeps=True) - 1], ProtocolError, "was released"),
    ],
)
def test_what_is_no_routine_for_others_gets_no_name(client: Client, ids: Any, error: Any, said: str) -> None:
    found = ids(client)
    with pytest.raises(error, match=said):
        client.ask(Publish(tuple("abc"[: len(found)]), tuple(found), 0))
    assert not client.bare.engine.directory.names


@pytest.mark.parametrize("convention", [(), (1,), (*CALLED[:-1], ("result", 1, None)), ["f"] * 6])
def test_what_is_no_convention_is_reported_and_changes_nothing(client: Client, convention: Any) -> None:
    routine = link(client, chain_of(2))
    client.send(Convention(routine, CALLED))
    before = client.session.steps
    client.send(Convention(routine, convention))
    assert [type(error) for error in client.bare.errors] == [ProtocolError]
    assert client.session.steps == before
    client.publish("f", ids=[routine])
    assert told_of(client, "f", count=0)[0][3] == CALLED


def test_a_convention_counts_as_steps_until_its_routine_is_released(bare: Bare) -> None:
    client = bare.client(steps=1 << 8)
    routine = link(client, chain_of(2))
    long = (*CALLED[:-1], ("fixed", "x" * (100 << 8), None))
    for _ in range(2):
        client.send(Convention(routine, long))
        assert client.session.steps > 100
    client.publish("f", ids=[routine])
    assert client.session.account.steps > 100
    client.send(Convention(routine, (*CALLED[:-1], ("fixed", "x" * (255 << 8), None))))
    assert [type(error) for error in bare.errors] == [QuotaError]
    client.release(routine)
    assert client.session.steps == 0


def test_a_look_up_with_other_ids_is_told_how_many_it_needs(bare: Bare, client: Client) -> None:
    client.publish("f", "x", ids=[link(client, capturing(), [client.upload([1.0])]), client.upload([2.0])])
    other = bare.client()
    for count in (0, 1, 3):
        assert other.ask(Lookup(("f", "x"), tuple(other.new() for _ in range(count)), 0, False)) == 2
    assert not other.session.tensors
    assert len(told_of(other, "f", "x", count=2)) == 2 + 4  # the records behind the heads
    assert len(other.session.tensors) == 2


def test_records_come_in_slices_with_the_texts_of_their_lines(bare: Bare, client: Client) -> None:
    program = chain_of(3 * RECORDS)
    client.send(Location(LINE, "train.py:3"))
    client.publish("f", ids=[link(client, program)])
    bare.engine.close(client.session)
    other = bare.client()
    found = list(other.ask(Lookup(("f",), (), 0, False)))
    assert max(map(len, found)) == RECORDS
    reader, made = RecordsReader(), None
    for record in [each for part in found[1:] for each in part]:
        made = reader.add(record)
    assert made == program
    assert {step.location for step in made.steps} == {"train.py:3"}


def test_a_name_holds_what_its_routine_captures_until_the_last_of_them_goes(bare: Bare, client: Client) -> None:
    w = client.upload([1.0])
    tensor = client.session.tensors[w]
    routine = link(client, capturing(), [w])
    client.publish("f", "g", ids=[routine, routine])
    client.release(w, routine)
    assert tensor.holders == 2
    client.publish("f", ids=[client.upload([5.0])])
    assert tensor.holders == 1
    bare.engine.close(client.session)
    bare.drain()
    assert tensor.holders == 1
    other = bare.client()
    assert decode(CALLED, capturing()).name == "f"
    other.ask(Lookup(("g",), (other.new(),), 0, True)).close()
    assert tensor.holders == 1  # a snapshot is another tensor
