"""A view of one element can stand for more than all memory: no operation may allocate its full size."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import DeviceMemoryError
from tensord.interpreter.wire.messages import Call, Chain, Effect
from tensord.vm.model.device_state import UNCOUNTED

from ..bare_engine import ONE, Bare, Client

VAST = ((UNCOUNTED // 8 + 1,), "float64")


@pytest.fixture(params=[True, False], ids=["inline", "streams"])
def client(request: pytest.FixtureRequest) -> Client:
    return Bare(inline=request.param).client()


def call(client: Client, op: str, id_: int, meta: Any, *attributes: tuple[str, Any]) -> int:
    client.send(Call(client.signature(op, (meta,), attributes), (id_,), (client.new(),), 0, 1))
    return client.ids


@pytest.fixture
def vast(client: Client) -> int:
    return call(client, "broadcast_to", client.upload([3.0]), ONE, ("shape", VAST[0]))


def test_a_part_of_it_is_an_ordinary_value(client: Client, vast: int) -> None:
    part = call(client, "getitem", vast, VAST, ("index", (("slice", 7, 9, None),)))
    assert client.fetch(part) == [3.0, 3.0]


@pytest.mark.parametrize(("op", "attributes"), [("sum", ()), ("var", ()), ("argmax", ()), ("negative", ())])
def test_no_kernel_gets_it(client: Client, vast: int, op: str, attributes: Any) -> None:
    result = call(client, op, vast, VAST, *attributes)
    with pytest.raises(DeviceMemoryError, match="larger than all the memory of cpu:0") as caught:
        client.fetch(result)
    assert (caught.value.op, caught.value.location) == (op, "user.py:1")


def test_nobody_gets_a_copy_of_it(client: Client, vast: int) -> None:
    with pytest.raises(DeviceMemoryError, match="use a part of it"):
        client.fetch(vast)
    chain = client.new()
    client.send(Chain(chain))
    with pytest.raises(DeviceMemoryError, match="a side effect's values"):
        client.ask(Effect((vast,), chain, None, 0, 1))
