"""Recycling: the objects of a released result are reused without a trace of the old result."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.wire.messages import Fetch, Release
from tensord.vm.memory import recycling
from tensord.vm.memory.recycling import recycle
from tensord.vm.model.tensor import Copy, VmTensor
from tensord.vm.reporting.invariants import violations

from ..bare_engine import Bare, Client
from ..parts import Parts

PAIR = ((2,), "float64")


@pytest.fixture
def client() -> Client:
    return Bare().client()


@pytest.fixture
def parts() -> Parts:
    return Parts("cpu:0", "sim:0")


def copy_of(tensor: VmTensor) -> Copy:
    (copy,) = tensor.storage.copies.values()
    return copy


def test_a_released_result_serves_the_next_with_a_new_id_and_its_own_value(client: Client) -> None:
    x = client.upload([1.0, 2.0])
    first = client.call("negative", x, meta=PAIR)
    objects = client.session.tensors[first]
    was = copy_of(objects).id
    client.send(Release((first,)))
    second = client.call("square", x, meta=PAIR)
    assert client.session.tensors[second] is objects
    assert copy_of(objects).id > was
    assert client.fetch(second) == [1.0, 4.0]
    assert not violations(client.bare.engine)


def test_it_serves_a_result_of_another_size(client: Client) -> None:
    first = client.call("negative", client.upload([1.0, 2.0]), meta=PAIR)
    objects = client.session.tensors[first]
    client.send(Release((first,)))
    second = client.call("negative", client.upload([[3.0, 4.0, 5.0]]), meta=((1, 3), "float64"))
    assert client.fetch(second) == [[-3.0, -4.0, -5.0]]
    assert objects in client.session.tensors.values()
    assert not violations(client.bare.engine)


def test_it_names_who_made_the_next_value_and_where(client: Client) -> None:
    x = client.upload([1.0, 2.0])
    client.send(Release((client.call("negative", x, meta=PAIR),)))
    second = client.call("square", x, meta=PAIR)
    assert client.session.tensors[second].storage.maker[0] == "square"


def test_a_device_keeps_a_few(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recycling, "MAX_RECYCLED", 3)
    ids = [client.upload([float(n)]) for n in range(9)]
    client.send(Release(tuple(ids)))
    assert len(client.bare.engine.devices["cpu:0"].recycled) == 3
    assert not violations(client.bare.engine)


def mirror(parts: Parts, tensor: VmTensor) -> None:
    there = parts.at("sim:0")
    tensor.storage.copies[there] = parts.residency.new_copy(there, 8, 1)


@pytest.mark.parametrize(
    "become",
    [
        lambda _, tensor: setattr(copy_of(tensor), "uses", 1),
        lambda _, tensor: setattr(copy_of(tensor), "client_mappings", 1),
        lambda _, tensor: setattr(copy_of(tensor), "poison", TensordError("it failed")),
        lambda _, tensor: setattr(copy_of(tensor), "buffer", None),
        lambda _, tensor: setattr(tensor.storage, "sharers", 2),
        lambda _, tensor: setattr(tensor, "strides", (16,)),
        lambda _, tensor: setattr(tensor, "bound", True),
        mirror,
    ],
)
def test_what_others_may_know_is_not_recycled_and_has_not_changed(
    parts: Parts, become: Callable[[Parts, VmTensor], None]
) -> None:
    tensor = parts.tensor()
    become(parts, tensor)
    before = parts.here.planned, parts.session.account.bytes, parts.device.allocated
    assert not recycle(tensor)
    assert (parts.here.planned, parts.session.account.bytes, parts.device.allocated) == before
    assert (tensor.holders, tensor.storage.account) == (1, parts.session.account)
    assert not parts.here.recycled


def test_what_was_a_replica_is_no_candidate_any_more(parts: Parts) -> None:
    tensor = parts.tensor()
    parts.here.candidates[copy_of(tensor)] = tensor.storage
    assert recycle(tensor)
    assert not parts.here.candidates


def test_recycling_gives_back_memory_plan_and_charge(parts: Parts) -> None:
    tensor = parts.tensor()
    assert recycle(tensor)
    assert (parts.here.planned, parts.session.account.bytes, parts.device.allocated) == (0, 0, 0)


def test_a_value_that_is_still_asked_for_is_not_recycled(client: Client) -> None:
    """The fetch was planned before the release, and runs behind it."""
    x = client.upload([1.0, 2.0])
    client.bare.device.compute[0].inline = False
    y = client.call("negative", x, meta=PAIR)
    client.send(Fetch(y, 7, 1, 0), Release((y,)))
    client.bare.device.compute[0].inline = True
    z = client.call("square", x, meta=PAIR)
    client.bare.drain()
    assert client.answers[7][0].tolist() == [-1.0, -2.0]
    assert client.fetch(z) == [1.0, 4.0]
    assert not violations(client.bare.engine)
