"""A new opcode, for the length of a test: the parts that it needs, without any other change.

The trial copies a tensor's value to memory that the host sees ("Snapshot"): it waits for the value, holds memory and
runs on the driving thread. It has the four things that an opcode needs: a row in `TRAITS`, a handler in admission, the
form of its message, and its rule in the serial engine.

An enum has no public way to take a member at run time, so `join` writes into its table of values: the members can be
looked up by value and are what the machine compares, but iterating over the enum does not show them. A real opcode is
a line in `Opcode` and one in `MessageKind`; and its declaration stands in `messages.DECLARATIONS`, from which `FIELDS`,
`FORMS`, `ROLES`, `KINDS` and the table in docs/wire.md follow, where here each of them is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from tensord.interpreter import opcodes
from tensord.interpreter.errors import CancelledError, KernelError, ProtocolError, TensordError
from tensord.interpreter.opcodes import TRAITS, Opcode, Traits, traits_of
from tensord.interpreter.wire import forms, messages, roles
from tensord.interpreter.wire.fields import LocationNumber, Request, UsedId
from tensord.interpreter.wire.message_kinds import MessageKind
from tensord.interpreter.wire.messages import Call, Release, Signature, Upload, encode_message
from tensord.vm.admission.exports import ReplyEnd
from tensord.vm.admission.lookup import refuse_cancelled, tensor_of
from tensord.vm.model.lifecycle import Status
from tensord.vm.model.session import Cause
from tensord.vm.model.tensor import Binding
from tensord.vm.reporting.invariants import violations
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.flat import SourceLocation

from ..model.oracle import Oracle
from .bare_engine import ONE, Bare, Client

KIND = 99


NAME = "Snapshot"


def join(patch: pytest.MonkeyPatch, enum: Any, name: str, value: Any) -> Any:
    """A member more, until the patch is undone."""
    member = enum._member_type_.__new__(enum, value)
    member._name_, member._value_ = name, value
    patch.setitem(enum._value2member_map_, value, member)
    return member


class Snapshot(NamedTuple):
    """Answer with a list of the values, as of this position in the program."""

    id: UsedId
    request: Request
    location: LocationNumber


KEY: Any = Snapshot  # the declarations that there are are a closed type


@pytest.fixture
def trial() -> Iterator[None]:
    """The row in the table, and the form of the message."""
    patch = pytest.MonkeyPatch()
    traits = Traits("snapshot", on_control=True, host_visible=True)
    patch.setitem(messages.DECLARATIONS, join(patch, MessageKind, "SNAPSHOT", KIND), KEY)
    patch.setitem(TRAITS, join(patch, Opcode, "SNAPSHOT", NAME), traits)
    patch.setitem(opcodes._BY_TEXT, NAME, traits)
    patch.setitem(messages.KINDS, KEY, KIND)
    fields = forms.fields_of(KEY)
    patch.setitem(forms.FIELDS, KIND, fields)
    patch.setitem(roles.ROLES, KIND, tuple((n, field) for n, field in enumerate(fields.values(), 1) if field.role))
    patch.setitem(forms.FORMS, KIND, forms.form_of(KEY))
    yield
    patch.undo()


def install(bare: Bare) -> None:
    """The handler: bind the operand, make the instruction, define its end."""
    admission = bare.engine.admission

    def snapshot(session: Any, message: Snapshot) -> None:
        id_, request, location = message
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
        except TensordError as error:
            admission.rejection.deny(session, error, request, location, "snapshot")
            return
        operand: Binding = admission.residency.operand(tensor, tensor.home, Cause(session, location))
        scheduler = admission.scheduler
        instruction = scheduler.new_instruction(session, Opcode(NAME), "snapshot", tensor.home, location)
        instruction.inputs, instruction.reads = (operand,), (operand.copy,)
        instruction.kernel = lambda array: array.tolist()
        instruction.on_end = ReplyEnd(session, request)
        scheduler.admit(instruction)

    admission.handlers[KEY] = snapshot


def install_rule(oracle: Oracle) -> None:
    """The rule of the opcode in the serial engine."""

    def snapshot(session: Any, message: Snapshot) -> None:
        value = session.tensors[message.id].value
        session.reply(message.request, None if value.array is None else value.array.tolist(), None)

    oracle.handlers[KEY] = snapshot


@pytest.fixture
def client(trial: None) -> Client:  # noqa: ARG001 - the opcode is there
    bare = Bare(inline=False)
    install(bare)
    return bare.client()


def sound(client: Client) -> bool:
    return violations(client.bare.engine) == []


def test_it_waits_for_the_value_and_answers_with_it(client: Client) -> None:
    x = client.call("negative", client.upload([1.0]))
    client.send(Snapshot(x, 7, 1))
    assert 7 not in client.answers
    assert sound(client)
    client.bare.drain()
    assert client.answers[7] == ([-1.0], None)
    assert not client.bare.engine.live


def test_it_sees_the_value_at_its_position_in_the_program(client: Client) -> None:
    x = client.upload([1.0])
    client.call("negative", x, out=x)
    client.send(Snapshot(x, 7, 1))
    client.call("negative", x, out=x)
    client.bare.drain()
    assert client.answers[7][0] == [-1.0]
    assert client.fetch(x) == [1.0]


def test_the_traits_in_its_row_are_what_the_scheduler_acts_on(client: Client) -> None:
    x = client.upload([1.0])
    client.call("negative", x, out=x)
    client.send(Snapshot(x, 7, 1))
    client.call("negative", x, out=x)
    kernel, snapshot, after = client.bare.engine.live.values()
    assert snapshot.traits is TRAITS[Opcode(NAME)]
    assert snapshot.hard == after.hard == 1  # the host sees it: no edge is elided
    assert kernel.writes[0].uses == 3  # it holds the memory
    client.send(Release((x,)))
    client.bare.drain()
    assert client.answers[7][0] == [-1.0]
    assert client.bare.device.allocated == 0


def test_an_error_in_front_of_it_is_its_answer(client: Client) -> None:
    x, wrong = client.upload([1.0]), 50
    client.send(Upload(wrong, (1,), "int64", "cpu:0", np.array([7]), 1))
    client.send(Signature(80, "take", (("axis", 0),), (ONE, ((1,), "int64")), "cpu:0", None))
    client.send(Call(80, (x, wrong), (51,), 0, 1), Snapshot(51, 7, 1))
    client.bare.drain()
    assert isinstance(client.answers[7][1], KernelError)
    assert sound(client)


def test_it_is_cancelled_with_its_session(client: Client) -> None:
    x = client.call("negative", client.upload([1.0]))
    client.send(Snapshot(x, 7, 1))
    client.bare.engine.cancel(client.session)
    client.bare.drain()
    assert isinstance(client.answers[7][1], CancelledError)


def test_a_damaged_message_is_refused_by_its_form(client: Client) -> None:
    client.send([KIND, -1, 7, 1])
    client.send([KIND, 1])
    client.bare.drain()
    (unasked,), (_, asked) = client.bare.errors, client.answers[7]
    assert type(asked) is type(unasked) is ProtocolError
    assert "the field 'id' of a SNAPSHOT message is -1" in str(asked)
    assert "a SNAPSHOT message has 3 fields after its kind, not 1" in str(unasked)
    x = client.upload([1.0])
    client.send(Snapshot(x, 8, 1))
    client.bare.drain()
    assert client.answers[8][0] == [1.0]


def test_the_trace_names_it_and_verifies(client: Client) -> None:
    x = client.upload([1.0])
    client.call("negative", x, out=x)
    client.send(Snapshot(x, 7, 1))
    client.call("negative", x, out=x)
    client.bare.drain()
    engine = client.bare.engine
    trace = Trace(engine.ring.records(lambda *_: SourceLocation()), devices=("cpu:0",), dropped=0)
    (record,) = [record for record in trace.records if record.opcode == "Snapshot"]
    assert (record.op, record.status) == ("snapshot", Status.DONE)
    assert traits_of(record.opcode).category == "snapshot"
    assert trace.verify() == []


def test_the_serial_engine_gives_the_same_with_its_rule(client: Client) -> None:
    answers: dict[int, Any] = {}
    oracle = Oracle({"cpu:0": []})
    install_rule(oracle)
    session = oracle.open_session(lambda request, value, _: answers.__setitem__(request, value))
    program: tuple[Any, ...] = (
        Upload(1, (1,), "float64", "cpu:0", np.array([3.0]), 1),
        Signature(1, "negative", (), (ONE,), "cpu:0", None),
        Call(1, (1,), (2,), 0, 1),
        Snapshot(1, 7, 1),
        Snapshot(2, 8, 1),
    )
    oracle.receive(session, [encode_message(message) for message in program])
    client.send(*program)
    client.bare.drain()
    assert answers == {7: [3.0], 8: [-3.0]} == {request: value for request, (value, _) in client.answers.items()}


def test_without_it_everything_is_as_before() -> None:
    assert set(TRAITS) == set(Opcode)
    assert traits_of("Snapshot") == Traits("unknown")
    assert KIND not in forms.FORMS
    with pytest.raises(ValueError, match="is not a valid Opcode"):
        Opcode(NAME)
    with pytest.raises(ValueError, match="is not a valid MessageKind"):
        MessageKind(KIND)
    assert Snapshot not in messages.KINDS
