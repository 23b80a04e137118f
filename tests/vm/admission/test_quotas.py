"""Quotas: a message that exceeds one is refused at admission, and its results are poisoned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError, ProtocolError, QuotaError
from tensord.interpreter.wire.file_messages import File
from tensord.interpreter.wire.locations import LINE_BITS
from tensord.interpreter.wire.message_kinds import ATOMIC, LOCATION
from tensord.interpreter.wire.messages import (
    Call,
    Chain,
    Effect,
    Fetch,
    Location,
    Lookup,
    Publish,
    Release,
    Signature,
    Span,
    Unpublish,
)

from ..bare_engine import ONE, Bare, Client
from ..programs import chain_of, link

FOUR = ((4,), "float64")


@pytest.fixture(params=[True, False], ids=["inline", "streams"])
def bare(request: pytest.FixtureRequest) -> Bare:
    return Bare(inline=request.param)


def charged(client: Client) -> int:
    return client.session.account.bytes


@pytest.mark.parametrize("more", [Client.call, Client.to_device, lambda client, *_: client.upload([1.0])])
def test_a_tensor_too_many_is_refused_and_the_next_one_after_a_release_is_not(bare: Bare, more: Any) -> None:
    client = bare.client(tensors=3)
    issue: Callable[[int], int] = lambda x: more(client, "negative", x) if more is Client.call else more(client, x)  # noqa: E731
    x, y = client.upload([1.0]), client.upload([2.0])
    client.upload([3.0])
    refused = issue(x)
    with pytest.raises(QuotaError, match=r"1 tensor more: the session has 3 of 3; release some") as caught:
        client.fetch(refused)
    assert (caught.value.location, len(bare.errors)) == ("user.py:1", 1)
    assert caught.value.op in {"negative", "to_device", "asarray"}
    client.release(refused, y)
    assert len(client.fetch(issue(x))) == 1


def test_a_view_and_a_lookup_count_as_tensors(bare: Bare) -> None:
    client = bare.client(tensors=2)
    x, _ = client.upload([1.0]), client.upload([1.0])
    client.publish("x", ids=[x])
    number = client.signature("flip", (((1,), "float64"),), (("axis", None),))
    client.send(Call(number, (x,), (client.new(),), 0, 1))
    with pytest.raises(QuotaError, match="2 of 2"):
        client.fetch(client.ids)
    client.release(client.ids)
    with pytest.raises(QuotaError, match="2 of 2"):
        client.ask(Lookup(("x",), (client.new(),), 0, False))


def test_an_op_that_releases_its_operand_needs_no_more_tensors(bare: Bare) -> None:
    client = bare.client(tensors=1)
    x = client.upload([1.0])
    for _ in range(3):
        x = client.call("negative", x, released=1)
    assert client.fetch(x) == [-1.0]


def test_releasing_one_handle_twice_over_makes_no_room_for_two(bare: Bare) -> None:
    client = bare.client(tensors=1)
    x = client.upload([1.0])
    number = client.signature("add", (((1,), "float64"), "float"))
    client.send(Call(number, (x, 1.0), (client.new(),), 1 << 1 | 1 << 40, 1))  # bits of a scalar, and of no operand
    with pytest.raises(QuotaError):
        client.fetch(client.ids)


def test_ids_that_are_refused_for_ever_take_no_memory(bare: Bare) -> None:
    client = bare.client(tensors=10)
    for _ in range(100):
        client.upload([1.0])
    assert len(client.session.tensors) == 20
    with pytest.raises(ProtocolError):
        client.fetch(client.ids)
    client.release(*range(1, 101))
    assert client.fetch(client.upload([1.0])) == [1.0]


def test_bytes_are_charged_while_a_storage_lives(bare: Bare) -> None:
    client = bare.client(bytes=100)
    x = client.upload(np.ones(4))
    y = client.call("negative", x, meta=FOUR)
    client.to_device(x)  # shares the storage
    assert charged(client) == 64
    refused = client.call("add", x, y, meta=((4,), "float64"))
    assert charged(client) == 96
    refused = client.call("add", x, y, meta=FOUR)
    with pytest.raises(
        QuotaError, match=r"32 bytes more.*of 100 bytes its tensors still hold 96 bytes.*or raise the quota"
    ):
        client.fetch(refused)
    assert charged(client) == 96
    with pytest.raises(QuotaError):
        client.fetch(client.upload(np.ones(4)))
    client.release(*range(1, client.ids + 1))
    assert charged(client) == 0


def test_what_was_refused_is_charged_once_it_is_overwritten(bare: Bare) -> None:
    client = bare.client(bytes=64)
    x, y = client.upload(np.ones(4)), client.upload(np.ones(4))
    refused = client.call("add", x, x, meta=FOUR)
    assert client.call("add", x, x, out=refused, meta=FOUR) == refused
    with pytest.raises(QuotaError):
        client.fetch(refused)
    client.release(y)
    client.call("add", x, x, out=refused, meta=FOUR)
    assert client.fetch(refused) == [2.0] * 4
    assert charged(client) == 64
    client.release(x, refused)
    assert charged(client) == 0


def test_writing_to_what_is_shared_takes_a_storage(bare: Bare) -> None:
    client = bare.client(bytes=40)
    x = client.upload(np.ones(4))
    y = client.to_device(x)
    client.call("negative", x, out=x, meta=FOUR)
    with pytest.raises(QuotaError):
        client.fetch(x)
    assert client.fetch(y) == [1.0] * 4
    client.release(x, y)
    assert charged(client) == 0


def test_the_maker_is_charged_whoever_holds_what_it_made(bare: Bare) -> None:
    client, other = bare.client(bytes=64), bare.client(bytes=32)
    x = client.upload(np.ones(4))
    client.publish("x", ids=[x])
    theirs = other.lookup("x")
    client.release(x)
    client.ask(Unpublish(("x",), 0))
    assert (charged(client), charged(other)) == (32, 0)
    kept = other.call("negative", theirs, released=1, meta=FOUR)  # may take over the memory: then it is its own
    assert (charged(client), charged(other)) == (0, 32)
    other.release(kept)
    assert charged(other) == 0


def test_a_session_that_has_ended_leaves_only_its_account(bare: Bare) -> None:
    client, other = bare.client(), bare.client()
    x = client.upload(np.ones(4))
    client.publish("x", ids=[x])
    theirs = other.lookup("x")
    bare.engine.close(client.session)
    bare.drain()
    storage: Any = other.session.tensors[theirs].storage
    assert storage.account.bytes == 32
    other.ask(Unpublish(("x",), 0))
    account = storage.account
    other.release(theirs)
    assert (account.bytes, account.names) == (0, 0)


def test_sizes_that_data_decide_are_charged_when_they_are_known(bare: Bare) -> None:
    client = bare.client(bytes=100)
    x = client.upload([3.0, 1.0, 3.0, 1.0])  # 32 bytes
    many = client.upload([3.0, 1.0, 2.0, 4.0])  # 32 bytes
    number = client.signature("unique_values", (FOUR,))
    client.send(Call(number, (x,), (client.new(),), 0, 1))
    assert client.fetch(client.ids) == [1.0, 3.0]
    assert charged(client) == 80
    client.send(Call(number, (many,), (client.new(),), 0, 1))
    with pytest.raises(QuotaError, match="32 bytes more") as caught:
        client.fetch(client.ids)
    assert (caught.value.op, caught.value.location) == ("unique_values", "user.py:1")
    assert charged(client) == 80
    client.release(*range(1, client.ids + 1))
    assert charged(client) == 0


def test_an_op_on_a_size_that_data_decide_is_refused_when_that_is_known() -> None:
    bare = Bare(inline=False)
    client = bare.client(bytes=60)
    x = client.upload([3.0, 1.0, 2.0, 4.0])
    unique, negative = client.signature("unique_values", (FOUR,)), client.signature("negative", (None,))
    client.send(Call(unique, (x,), (2,), 0, 1), Release((x,)), Call(negative, (2,), (3,), 0, 1))
    with pytest.raises(QuotaError, match="32 bytes more") as caught:
        client.ask(Fetch(3, 0, 1, 0))
    assert caught.value.op == "negative"
    assert client.fetch(2) == [1.0, 2.0, 3.0, 4.0]
    client.release(2, 3)
    assert charged(client) == 0


def test_numbers_of_signatures_and_locations_are_bounded(bare: Bare) -> None:
    client = bare.client(signatures=2, locations=2, text=10)
    x = client.upload([1.0])
    client.send(Location(3, "far"), Location(2, "long" * 10))
    assert [type(error) for error in bare.errors] == [QuotaError, QuotaError]
    assert (client.session.source.where(1), len(client.session.source.lines)) == ("user.py:1", 1)
    client.call("negative", x)
    client.call("negative", x)
    refused = client.call("negative", x)
    with pytest.raises(QuotaError, match="signature 3: numbers go up to 2"):
        client.fetch(refused)
    assert set(client.session.plans) == {1, 2}


def test_the_bytes_of_locations_and_of_spans_are_bounded_and_the_newest_are_known(bare: Bare) -> None:
    client = bare.client(location_bytes=10_000)
    for number in range(1, 101):
        client.send(Location(number, f"{number:0900}"), Span(number, 7 * (f"{number:0128}",)))
    session = client.session
    assert bare.errors == []
    assert 7_000 < session.source.lines.nbytes <= 10_000
    assert 7_000 < session.source.spans.nbytes <= 10_000
    assert (session.source.where(1), session.source.span(1 << LINE_BITS)) == (None, ())
    assert (session.source.where(100), len(session.source.span(100 << LINE_BITS))) == (f"{100:0900}", 7)


@pytest.mark.parametrize("refused", [Location(2, "too long a line"), [LOCATION, 2, None], [ATOMIC, [[LOCATION, 2, 5]]]])
def test_the_number_of_a_refused_location_stands_for_none(bare: Bare, refused: Any) -> None:
    client = bare.client(text=12)
    client.send(Location(2, "former.py:2"), refused)
    assert len(bare.errors) == 1
    assert client.session.source.where(2) is None


def test_the_number_of_a_refused_span_stands_for_none(bare: Bare) -> None:
    client = bare.client()
    client.send(Span(2, ("former",)), Span(2, ("x" * 200,)))
    assert len(bare.errors) == 1
    assert client.session.source.span(2 << LINE_BITS) == ()


def test_chains_are_bounded(bare: Bare) -> None:
    client = bare.client(chains=1)
    client.send(Chain(client.new()), Chain(client.new()))
    assert "1 chain more: the session has 1 of 1" in str(bare.errors[0])
    with pytest.raises(QuotaError, match="1 chain more"):
        client.ask(Effect((), client.ids, print, 0, 0))
    with pytest.raises(ProtocolError, match="chain 99 was never made"):
        client.ask(Effect((), 99, print, 0, 0))
    client.send(Release((1,)), Chain(client.new()))
    assert len(bare.errors) == 1
    assert len(client.session.chains) == 1


def test_ids_of_refused_chains_are_bounded_and_go_with_a_release(bare: Bare) -> None:
    client = bare.client(chains=2)
    ids = [client.new() for _ in range(10)]
    client.send(*map(Chain, ids))
    assert list(client.session.refused_chains) == ids[2:4]
    client.send(Release(tuple(ids)))
    assert not client.session.refused_chains


def test_files_that_could_not_be_opened_are_remembered_up_to_a_bound(bare: Bare) -> None:
    client = bare.client(files=2)
    client.send(*(File(number, (0, "x"), 0, writes=True) for number in range(1, 100)))
    assert list(client.session.files.writing) == [1, 2]  # their numbers are bounded
    assert len(bare.errors) == 99


def test_the_error_counts_what_stands_for_refused_results(bare: Bare) -> None:
    client = bare.client(tensors=2)
    x, _ = client.upload([1.0]), client.upload([2.0])
    for _ in range(2):
        refused = client.call("negative", x)
    with pytest.raises(QuotaError, match="may have 2 and has 3, including the ids of refused results"):
        client.fetch(refused)


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "", " ", "\u2028"])
def test_a_name_that_would_break_a_table_is_refused(bare: Bare, name: str) -> None:
    client = bare.client()
    with pytest.raises(MetadataError, match="a name is printable text"):
        client.publish("good", name, ids=[client.upload([1.0])] * 2)
    assert not bare.engine.directory.names


def test_an_error_tells_some_of_the_names_that_there_are(bare: Bare) -> None:
    client = bare.client()
    client.publish(*[f"name {n:03}" for n in range(100)], ids=[client.upload([1.0])] * 100)
    with pytest.raises(MetadataError, match=r"\(published: name 000, .*, name 019 and 80 more\)"):
        client.lookup("other")


def test_names_are_bounded_by_who_published_them_last(bare: Bare) -> None:
    client, other = bare.client(names=2, text=9), bare.client(names=2)
    x, y = client.upload([1.0]), other.upload([2.0])
    client.publish("a", "b", ids=[x, x])
    with pytest.raises(QuotaError, match="1 name more: the session has published 2 of 2; unpublish some"):
        client.ask(Publish(("a", "c"), (x, x), 0))
    other.publish("a", ids=[y])
    client.publish("c", ids=[x])
    with pytest.raises(QuotaError, match="a name of 10 characters; 9 are allowed"):
        client.ask(Publish(("n" * 10,), (x,), 0))
    with pytest.raises(MetadataError):
        client.ask(Lookup(("nothing",), (client.new(),), 0, False))
    other.ask(Unpublish(("a", "b", "c"), 0))
    assert (client.session.account.names, other.session.account.names) == (0, 0)


def test_routines_under_names_are_bounded_by_their_steps(bare: Bare) -> None:
    client, other = bare.client(steps=16), bare.client()
    four, six = (link(client, chain_of(length)) for length in (4, 6))
    client.publish("a", "b", ids=[four, four])
    with pytest.raises(QuotaError, match="would have 18 steps of 16; unpublish some"):
        client.ask(Publish(("c", "d"), (four, six), 0))
    client.publish("a", "c", ids=[six, four])  # it replaces the four
    assert (client.session.account.steps, client.session.steps) == (14, 10)
    client.release(four, six)
    assert (client.session.account.steps, client.session.steps) == (14, 0)
    other.publish("a", ids=[other.upload([1.0])])
    other.ask(Unpublish(("c",), 0))
    assert client.session.account.steps == 4


def nested(levels: int) -> Any:
    """Lists inside one another, `levels` deep."""
    value: Any = ()
    for _ in range(levels - 1):
        value = (value,)
    return value


@pytest.mark.parametrize("field", [0, 1, 2])
def test_a_signature_nested_too_deeply_is_the_error_of_each_call_that_uses_it(bare: Bare, field: int) -> None:
    client = bare.client(nesting=8)
    for levels, error in ((100_000, QuotaError), (9, QuotaError), (8, (MetadataError, ProtocolError))):
        fields: list[Any] = [(), (((1,), "float64"),), None]
        fields[field] = nested(levels)
        number = client.signature("negative", fields[1], fields[0], fields[2])
        x = client.upload([1.0])
        client.send(Call(number, (x,), (client.new(),), 0, 1))
        with pytest.raises(error) as caught:
            client.fetch(client.ids)
        assert isinstance(caught.value, QuotaError) == (levels > 8)


def test_the_largest_id_is_refused_and_the_one_before_it_is_not(bare: Bare) -> None:
    client = bare.client()
    client.ids = 2**63 - 2
    assert client.fetch(client.upload([1.0])) == [1.0]
    client.upload([1.0])
    assert "the field 'output' of a UPLOAD message" in str(bare.errors[-1])


def test_operands_of_all_signatures_are_counted_until_their_numbers_mean_something_else(bare: Bare) -> None:
    client = bare.client(operands=5)
    x = client.upload([1.0])

    def concat(number: int, count: int) -> list[float]:
        client.send(
            Signature(number, "concat", (("axis", 0),), (ONE,) * count, "cpu:0", None),
            Call(number, (x,) * count, (client.new(),), 0, 1),
        )
        return client.fetch(client.ids)

    assert concat(1, 3) == [1.0] * 3
    with pytest.raises(QuotaError, match="3 operands more: the session's signatures have 3 of 5"):
        concat(2, 3)
    assert concat(2, 2) == [1.0] * 2
    assert concat(1, 1) == [1.0]
    assert concat(3, 2) == [1.0] * 2
    assert client.session.operands == 5
