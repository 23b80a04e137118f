"""Boxing: the value is the same from any layout and placement to any other; and only the necessary parts move."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensord as td
from tensord.client.global_tensors.boxing.route import route
from tensord.client.global_tensors.form import Form
from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split, layout_of
from tensord.interpreter.layouts.placement import placement
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.message_kinds import MessageKind

from ...each_case import each_case

DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]
PLACEMENTS = [
    placement(names)
    for names in (
        ["sim:0"],
        ["sim:1", "sim:0"],
        ["sim:0", "sim:1", "sim:2", "sim:3"],
        [["sim:0", "sim:1"], ["sim:2", "sim:3"]],
        [["sim:3", "sim:1", "sim:0"]],
    )
]
ATOMS = [Split(0), Split(1), BROADCAST, Partial("sum"), Partial("max")]
EXAMPLES = 40
COLLECTIVE = MessageKind.COLLECTIVE


def layouts(where):
    found = product(ATOMS, repeat=len(where.grid))
    return [one for one in found if len({atom for atom in one if isinstance(atom, Partial)}) < 2]


forms = st.sampled_from(PLACEMENTS).flatmap(lambda where: st.tuples(st.just(where), st.sampled_from(layouts(where))))


@pytest.fixture(scope="module")
def session():
    with td.connect("local", devices=DEVICES) as session:
        yield session
        session.sync()
        assert session.trace().verify() == []


@settings(max_examples=EXAMPLES)
@given(before=forms, after=forms, shape=st.tuples(st.integers(0, 7), st.integers(0, 5)), dtype=st.sampled_from("fl"))
def test_the_value_is_the_same_in_every_form(session, before, after, shape, dtype):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    tensor = session.global_tensor(array, *before)
    moved = tensor.to_global(*after)
    assert (moved.placement, moved.layout) == after
    np.testing.assert_array_equal(moved.numpy(), array)
    np.testing.assert_array_equal(tensor.numpy(), array)
    shapes = [part.shape for part in moved.parts()]
    assert shapes == [share.shape for share in moved._form.shares]
    assert [part.device for part in moved.parts()] == list(after[0].names)


@each_case("given, wanted, names, received", [
    (Split(0), BROADCAST, ["all_gather"], [(48, 48)]),
    (BROADCAST, Split(0), ["slice"], [(0, 0)]),
    (Split(0), Split(1), ["all_to_all"], [(24, 24)]),
    (Partial("sum"), BROADCAST, ["all_reduce"], [(96, 96)]),
    (Partial("sum"), Split(1), ["reduce_scatter"], [(48, 48)]),
    (BROADCAST, Partial("sum"), ["zeros"], [()]),
    (Split(0), Partial("sum"), ["all_gather", "zeros"], [(48, 48), ()]),
    (Partial("sum"), Partial("sum"), [], []),
])  # fmt: skip
def test_what_moves_is_what_has_to(given, wanted, names, received):
    where = placement(["sim:0", "sim:1"])
    meta = Meta.of((4, 6), "float32")
    steps = route(Form.of(meta, where, (given,)), Form.of(meta, where, (wanted,)))
    assert [step.name for step in steps] == names
    assert [step.received for step in steps] == received


@each_case("given, wanted, names, received", [
    (Split(0), BROADCAST, ["send", "all_gather"], [(48, 48), (48, 48)]),
    (Partial("sum"), Split(0), ["reduce_scatter", "send"], [(48, 48), (48, 48)]),
    (BROADCAST, Split(1), ["send"], [(48, 48)]),
    (BROADCAST, BROADCAST, ["send"], [(96, 96)]),
    (Partial("sum"), BROADCAST, ["reduce_scatter", "send", "all_gather"], [(48, 48), (48, 48), (48, 48)]),
])  # fmt: skip
def test_to_another_placement_as_little_goes_as_can(given, wanted, names, received):
    meta = Meta.of((4, 6), "float32")
    before = Form.of(meta, placement(["sim:0", "sim:1"]), (given,))
    steps = route(before, Form.of(meta, placement(["sim:2", "sim:3"]), (wanted,)))
    assert [step.name for step in steps] == names
    assert [step.received for step in steps] == received


def test_a_part_that_a_device_has_does_not_come_from_another():
    meta = Meta.of((4, 6), "float32")
    before = Form.of(meta, placement(["sim:0", "sim:1"]), (Split(0),))
    (step,) = route(before, Form.of(meta, placement(["sim:1", "sim:2"]), (Split(0),)))
    assert (step.name, step.received) == ("send", (48, 48))


def test_two_splits_of_one_axis_are_gathered_in_their_order(session):
    where = placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]])
    tensor = session.global_tensor(np.arange(11), where, (Split(0), Split(0)))
    assert [part.tolist() for part in tensor.parts()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    for layout in [(BROADCAST, Split(0)), (Split(0), BROADCAST), (Partial("sum"), Split(0))]:
        assert tensor.to_global(layout=layout).tolist() == list(range(11))


@each_case("size", [(40, 30), (300, 200)], ids=["small", "large"])
def test_sums_have_the_same_bits_each_time_and_in_a_routine(make_session, size):
    session = make_session(devices=DEVICES)
    where = placement(["sim:0", "sim:1", "sim:2"])
    rng = np.random.default_rng(5)
    parts = [session.asarray(rng.normal(size=size), name) for name in where.names]
    addends = session.global_tensor(parts=parts, placement=where, layout=td.partial("sum"))

    def sums(x):
        return [x.to_global(layout=layout) for layout in (BROADCAST, Split(0), Split(1))]

    op_by_op, again, captured = sums(addends), sums(addends), session.routine(sums)(addends)
    for one, other, third in zip(op_by_op, again, captured, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes() == third.numpy().tobytes()
        np.testing.assert_allclose(one.numpy(), addends.numpy(), rtol=1e-12, atol=1e-12)


def test_slices_are_gathered_and_exchanged_by_collectives(session, monkeypatch):
    tensor = session.global_tensor(np.eye(4), placement(["sim:0", "sim:1"]), Split(0))
    sent = []
    send = session._core.transport.send

    def note(batch):
        sent.extend(batch)
        send(batch)

    monkeypatch.setattr(session._core.transport, "send", note)
    for layout in (BROADCAST, Split(1)):
        np.testing.assert_array_equal(tensor.to_global(layout=layout).numpy(), np.eye(4))
    assert [message[1] for message in sent if message[0] == COLLECTIVE] == ["all_gather", "all_to_all"]


def test_a_moved_tensor_is_independent_of_the_one_that_it_was(session):
    tensor = session.global_tensor(np.zeros(4), placement(["sim:0", "sim:1"]))
    same, cut = tensor.to_global(), tensor.to_global(layout=td.split(0))
    tensor += 1
    same += 2
    assert (tensor.tolist(), same.tolist(), cut.tolist()) == ([1.0] * 4, [2.0] * 4, [0.0] * 4)
    whole = tensor.to_device("sim:0")
    whole += 5
    assert tensor.tolist() == [1.0] * 4


def test_layouts_that_do_not_fit_are_refused_at_the_call(session):
    tensor = session.global_tensor(np.zeros((4, 2)), placement(["sim:0", "sim:1"]))
    with pytest.raises(td.MetadataError, match=r"out of bounds.*test_boxing.py"):
        tensor.to_global(layout=td.split(2))
    with pytest.raises(td.MetadataError, match=r"unknown device 'sim:9'.*test_boxing.py"):
        tensor.to_global(td.placement(["sim:0", "sim:9"]))
    with pytest.raises(td.MetadataError, match="grid dimensions"):
        tensor.to_global(layout=(td.broadcast, td.broadcast))
    assert layout_of(td.split(-1), 1, tensor._meta) == (Split(1),)
