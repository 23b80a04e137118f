"""`out=`: every op with several results writes each to a tensor of its own."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.wire.message_kinds import CALL, FETCH, SIGNATURE

SQUARE = ((2, 2), "float64")


def test_one_tensor_does_not_take_two_results(session):
    """The tensor's value would be ambiguous."""
    x, first, second = (session.asarray(np.eye(2)) for _ in range(3))
    for _ in range(2):  # the second call takes the short way
        assert session.call("qr", [x], out=[first, second]) == [first, second]
        with pytest.raises(td.MetadataError, match=r"qr: out= names a tensor twice"):
            session.call("qr", [x], out=[first, first])
    assert first.numpy().tolist() == (-np.eye(2)).tolist() or first.numpy().tolist() == np.eye(2).tolist()


def test_no_op_with_several_results_writes_two_of_them_to_one_tensor(session):
    several = [op for op in REGISTRY.values() if op.outputs > 1 and not op.dynamic and op.inputs == 1]
    assert {"qr", "svd", "eigh", "slogdet"} <= {op.name for op in several}
    x = session.asarray(np.eye(2))
    for op in several:
        with pytest.raises(td.MetadataError, match=f"^{op.name}: out= names a tensor twice"):
            session.call(op.name, [x], out=[x] * op.outputs)


@pytest.mark.parametrize("engine", ["vm", "serial"])
def test_the_machine_refuses_it_of_a_foreign_client(make_session, engine):
    session = make_session(engine=engine, expect_empty=engine == "vm")
    x, target = session.asarray(np.eye(2)), session.asarray(np.zeros((2, 2)))
    session.sync()
    transport = session._core.transport
    request, reply = transport.request()
    transport.send(
        [
            [SIGNATURE, 900, "qr", (("mode", "reduced"),), (SQUARE,), "cpu:0", (SQUARE, SQUARE)],
            [CALL, 900, (x._id,), (target._id, target._id), 0, 0],
            [FETCH, target._id, request, 0, 0],
        ]
    )
    assert reply.done
    assert isinstance(reply.error, td.MetadataError)
    assert "out= names a tensor twice" in reply.error.message
    assert x.numpy().tolist() == np.eye(2).tolist()
