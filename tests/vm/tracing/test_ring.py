"""The ring's record of an instruction, with metas, attributes and work, without a cost per instruction."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.vm.scheduler.fair_queue import GUARANTEED_INSTRUCTIONS
from tensord.vm.tracing.flat import IMMEDIATE
from tensord.vm.tracing.record import MetaRecord

from ...forked import run_script

F32 = "float32"


def last(session, op):
    """The newest record of an op."""
    return [record for record in session.trace().records if record.op == op][-1]


def test_an_op_that_ran_at_admission_says_what_of(make_session):
    session = make_session(devices=["cpu:0"])
    x, w = (session.asarray(np.ones(shape, F32)) for shape in ((4, 3), (3, 5)))
    session.call("sum", [x @ w], {"axis": (0,), "keepdims": True})
    product, total = last(session, "matmul"), last(session, "sum")
    assert product.inputs == (MetaRecord((4, 3), F32), MetaRecord((3, 5), F32))
    assert (product.outputs, product.attributes) == ((MetaRecord((4, 5), F32),), "")
    assert product.work > 0
    assert (total.outputs, total.attributes) == ((MetaRecord((1, 5), F32),), "axis=(0,), keepdims=True")


def test_an_op_on_a_stream_a_transfer_and_accesses_say_it_too(sim_session):
    x = sim_session.asarray(np.ones((4, 3), F32), device="sim:0")
    (x * 2).to_device("cpu:0").numpy()
    whole = MetaRecord((4, 3), F32)
    assert (last(sim_session, "upload").inputs, last(sim_session, "upload").outputs) == ((), (whole,))
    assert last(sim_session, "multiply").inputs == (whole, MetaRecord(None, "int"))
    (moved,) = [record for record in sim_session.trace().records if record.opcode == "Transfer"]
    assert (moved.inputs, moved.outputs) == ((whole,), (whole,))
    assert (last(sim_session, "fetch").inputs, last(sim_session, "fetch").outputs) == ((whole,), ())


def test_a_meta_that_the_data_decide_is_there_once_they_have(make_session):
    session = make_session(devices=["cpu:0"])
    (values,) = session.call("unique_values", [session.asarray(np.array([1.0, 2.0, 1.0]))])
    values.numpy()
    assert last(session, "unique_values").outputs == (MetaRecord((2,), "float64"),)


def test_every_record_of_a_plan_shares_one_description(make_session, machine_of):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones(8, F32))
    for _ in range(3):
        x = x + 1
    session.sync()
    ring = machine_of(session).engine.ring
    adds = [entry for entry in ring.entries if len(entry) == IMMEDIATE and entry[1][2] == "add"]
    assert len(adds) == 3
    assert len({id(entry[1]) for entry in adds}) == 1


UNWALKED = """
import gc
import numpy as np
import tensord as td
from tensord.vm.tracing.flat import SHORT

gc.unfreeze()  # tuples of this process before it ran this are in entries, too
with td.connect("local", devices=["cpu:0", "sim:0"]) as session:
    x = session.asarray(np.ones((4, 3), "float32"), device="sim:0")
    session.call("sum", [x + 1], {"axis": (0,)})
    x.numpy()
    session.sync()
    for _ in range(8):  # each finds out of one more level of tuples that they hold atoms only
        gc.collect()
    entries = session._core.transport.machine.engine.ring.entries
    short = [entry for entry in entries if len(entry) in SHORT]
    assert short
    assert not any(gc.is_tracked(entry) for entry in short)
"""


def test_entries_hold_nothing_that_the_garbage_collector_walks(tmp_path):
    (tmp_path / "script.py").write_text(UNWALKED)
    assert run_script(str(tmp_path / "script.py")).returncode == 0


def test_memory_in_use_is_that_of_the_device_after_the_op(make_session, machine_of):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones(1000, F32))
    y = x + 1
    session.sync()
    assert last(session, "add").used == 8000 == machine_of(session).devices["cpu:0"].allocated
    assert y.shape == (1000,)


@pytest.mark.parametrize("elements", [1000, 1_000_000], ids=["inline", "streams"])
def test_what_moves_bytes_says_how_many_and_what_memory_is_in_use(make_session, elements):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones(elements, F32))
    x.numpy()
    session.sync()
    for name in ("upload", "fetch"):
        assert (last(session, name).nbytes, last(session, name).used) == (4 * elements, 4 * elements)


def test_memory_in_use_counts_operands_that_die_with_the_op(make_session, machine_of):
    session = make_session(devices=["cpu:0", "sim:0"])
    device = machine_of(session).devices["sim:0"]
    x = session.asarray(np.ones(1000, F32), device="sim:0")
    session.sync()
    device.hold("compute")
    y = session.call("sort", [x])[0]  # not elementwise: it cannot take over the memory of x
    session._core.outbox.flush()
    del x
    session._core.outbox.flush()
    device.resume("compute")
    session.sync()
    assert last(session, "sort").used == 8000
    assert device.allocated == 4000 == 4 * y.shape[0]


def test_a_release_names_the_copies_whose_memory_it_frees(make_session):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones(8, F32))
    session.sync()
    made = last(session, "upload").operands[0].copy
    del x
    session.sync()
    (freed,) = last(session, "release").operands
    assert (freed.copy, freed.kind) == (made, "freed")
    assert session.trace().verify() == []


class TestHeld:
    """A ready instruction that could not go on records its reason."""

    def test_by_memory(self, make_session, machine_of):
        session = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 2048}])
        device = machine_of(session).devices["sim:0"]
        x = session.asarray(np.ones(256, F32), device="sim:0")
        session.sync()
        device.hold("compute")
        total = session.call("sum", [x])[0]
        session._core.outbox.flush()
        del x
        other = session.asarray(np.ones(400, F32), device="sim:0")  # fits once the sum has run
        session._core.outbox.flush()
        device.resume("compute")
        session.sync()
        assert last(session, "upload").held == "memory"
        assert (total.item(), other.shape) == (256.0, (400,))

    def test_by_fairness(self, make_session, machine_of):
        first, second = (make_session("local:fair", devices=["cpu:0", "sim:0"]) for _ in range(2))
        device = machine_of(first).devices["sim:0"]
        x, _y = (session.asarray(np.ones((400, 400), F32), device="sim:0") for session in (first, second))
        for session in (first, second):
            session.sync()
        device.hold("compute")
        results = [first.call("matmul", [x, x]) for _ in range(GUARANTEED_INSTRUCTIONS + 1)]
        first._core.outbox.flush()
        device.resume("compute")
        first.sync()
        held = [record.held for record in first.trace().records if record.op == "matmul"]
        assert held == [""] * GUARANTEED_INSTRUCTIONS + ["fairness"]
        assert len(results) == GUARANTEED_INSTRUCTIONS + 1


@pytest.mark.parametrize("operands", [2, 40])
def test_a_description_does_not_grow_with_what_attributes_hold(make_session, operands):
    session = make_session(devices=["cpu:0"])
    x = session.asarray(np.ones((operands, 1), F32))
    session.call("concat", [x] * operands, {"axis": 0})
    session.call("reshape", [x], {"shape": (1,) * 30 + (operands,)})
    assert all(len(record.attributes) <= 200 for record in session.trace().records)
