"""Every field of every kind of message, with each value of a wrong type: refused by the field's name, nothing changed.

The kinds and the fields come from the declarations, so a new field is tested once its type has a line in `FITTING`.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from typing import Any, get_type_hints

import numpy as np
import pytest

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.files.open_file import OpenFile, OutputFile
from tensord.interpreter.wire import fields
from tensord.interpreter.wire.fields import Role
from tensord.interpreter.wire.file_messages import Checkpoint, File, Flush, Load, Restore, Write
from tensord.interpreter.wire.forms import FIELDS
from tensord.interpreter.wire.locations import LINE_BITS
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, UNGROUPED, MessageKind
from tensord.interpreter.wire.messages import (
    DECLARATIONS,
    Atomic,
    Call,
    Chain,
    Effect,
    Fetch,
    Hint,
    ListNames,
    Location,
    Lookup,
    NamedMessage,
    Publish,
    Query,
    Release,
    Restart,
    Share,
    Signature,
    Span,
    Sync,
    ToDevice,
    Unpublish,
    Upload,
    Wait,
    encode_message,
)
from tensord.interpreter.wire.node_messages import Collective, Recv, Send
from tensord.interpreter.wire.program_messages import Convention, Link, ProgramPart, Run
from tensord.interpreter.wire.roles import ids_of, outputs_of
from tensord.streams.links.exchange import Exchange
from tensord.streams.links.in_memory import InMemory

from ...each_case import each_case
from ...sampling import sampled
from ..bare_engine import ONE, Bare, Client

DEEP: list[Any] = functools.reduce(lambda inner, _: [inner], range(10_000), [])
STRANGE: dict[str, Any] = {
    "None": None,
    "-1": -1,
    "2**70": 2**70,
    "NaN": float("nan"),
    "1.5": 1.5,
    "x": "x",
    "[]": [],
    "[[]]": [[]],
    "deep": DEEP,
}
LISTS = ("[]", "[[]]", "deep")

# The values that a field of each type may hold; all others are of a wrong type.
FITTING: dict[Any, tuple[str, ...]] = {
    fields.Request: (),
    fields.LocationNumber: (),
    fields.NewLocationNumber: (),
    fields.NewSpanNumber: (),
    fields.SpanPath: ("[]",),
    fields.SignatureNumber: (),
    fields.NewSignatureNumber: (),
    fields.Generation: (),
    fields.Bits: (),
    fields.UsedId: (),
    fields.UsedIds: ("[]",),
    fields.OneOrMoreIds: (),
    fields.NewId: (),
    fields.NewIdOrZero: (),
    fields.NewIds: ("[]",),
    fields.WrittenIds: ("[]",),
    fields.FileNumber: (),
    fields.Offsets: ("[]",),
    fields.Count: (),
    fields.ChainId: (),
    fields.Operands: ("[]",),
    fields.Text: ("x",),
    fields.LocationText: ("x",),
    fields.Name: ("x",),
    fields.HintName: (),
    fields.TransferName: (),
    fields.TransferNameOrNone: (),
    fields.Names: ("[]",),
    fields.Flag: (),
    fields.Shape: ("[]",),
    fields.Payload: (),
    fields.Callback: ("None",),
    fields.Attributes: LISTS,
    fields.Metas: LISTS,
    fields.Targets: ("None", *LISTS),
    fields.Arguments: LISTS,
    fields.Scalars: ("[]",),
    fields.Effects: ("[]",),
    fields.Group: LISTS,
}

REQUEST, NEW = 60, 50
FOLDER = tempfile.mkdtemp()
atexit.register(shutil.rmtree, FOLDER)
with CheckpointDirectory.open(f"{FOLDER}/there", create=True) as there:
    there.begin().commit()
FILE = os.memfd_create("values")  # for the process's life
os.write(FILE, bytes(32))
INPUT, OUTPUT = OpenFile(os.dup(FILE), "a file"), OutputFile(FILE, "a file")
ENTRY = ("w", ((4,), "float64"), 0, 32, 32, False, None, 0, False, False)
# A program that adds its number to its parameter, and prints the sum.
RECORDS = (
    ("number", "float", "parameter", (), None, ""),
    ("parameter", ((1,), "float64"), 0, ""),
    ("add", (0, -1), (), 0, None, 1),
    ("print", (1,), (("chain", 0), ("parts", (None,)), ("sep", " ")), -1, None, 1),
    ("return", (1,)),
)
CONVENTION = ("f", ("x", "n"), (("parameter", 0, None), ("number", 0, None)), (), (), ("result", 0, None))


def well_formed(
    tensor: int, signature: int, chain: int, program: int, routine: int
) -> dict[type[NamedMessage], NamedMessage]:
    """A message of each kind that would be admitted."""
    messages: list[NamedMessage] = [
        Call(signature, (tensor, 1.0), (NEW,), 0, 1),
        Release((tensor,)),
        Upload(NEW, (4,), "float64", "cpu:0", np.ones(4), 1),
        Fetch(tensor, REQUEST, 1, NEW),
        Wait((tensor,), REQUEST, 1),
        Sync(REQUEST, 1),
        Effect((tensor,), chain, None, REQUEST, 1),
        Chain(NEW),
        Signature(signature, "add", (), (ONE, ONE), "cpu:0", None),
        Location(1, "other.py:1"),
        Publish(("x",), (tensor,), REQUEST),
        Lookup(("kept",), (NEW,), REQUEST, snapshot=False),
        Unpublish(("kept",), REQUEST),
        ToDevice(tensor, NEW, "cpu:0", 1),
        Restart(0),
        Atomic([encode_message(Release((tensor,)))]),
        ListNames(REQUEST),
        Query("stats", (), REQUEST),
        Span(1, ("other",)),
        ProgramPart(NEW, RECORDS),
        Link(NEW, program, ("cpu:0",), (), 1),
        Run(routine, (tensor,), (1.0,), (NEW,), ((chain, None, REQUEST),), 1),
        Convention(routine, CONVENTION),
        Hint(tensor, "prefetch", "", 1),
        File(2, (FILE, "a file"), REQUEST),
        Load(1, (NEW,), (ENTRY,), "cpu:0", own=False, digest=False, location=1),
        Write(3, (tensor,), (0,), 1),
        Flush(3, REQUEST),
        Checkpoint(f"{FOLDER}/here", (), 2, REQUEST, 1),
        Restore(f"{FOLDER}/there", 0, (), deep=False, request=REQUEST),
        Share(tensor, REQUEST, 1, NEW),
        Collective("all_reduce", (tensor,), (NEW,), (), (), 1),
        Send(tensor, "node0", bytes(16), 1),
        Recv(NEW, (4,), "float64", "cpu:0", "node0", bytes(16), 1),
    ]
    return {type(message): message for message in messages}


def some_wrong_fields(kinds: Collection[MessageKind], times: int = 2) -> list[Any]:
    """Each field of these kinds with some of the values of a wrong type."""
    return sampled(wrong_fields(kinds), lambda case: (case.values[:2], case.values[2]), times=times)


def wrong_fields(kinds: Collection[MessageKind]) -> Iterator[Any]:
    """Each field of these kinds, and the name of a value of a wrong type."""
    for kind, declaration in [(kind, DECLARATIONS[kind]) for kind in sorted(kinds)]:
        for name, annotation in get_type_hints(declaration, include_extras=True).items():
            for text in STRANGE:
                if text not in FITTING[annotation]:
                    yield pytest.param(kind, name, text, id=f"{kind.name}-{name}-{text}")


class Scene:
    """A client with a tensor, a signature, a chain and a name, and all that is known of its session."""

    def __init__(self) -> None:
        self.bare = Bare()
        self.bare.engine.admission.answer = lambda *_: None
        self.bare.engine.join(InMemory("node0", {"node0": Exchange()}), self.bare.sink)
        self.client: Client = self.bare.client()
        self.tensor = self.client.upload([1.0])
        self.signature = self.client.signature("add", (ONE, "float"))
        self.chain = self.client.new()
        self.client.send(Chain(self.chain))
        self.program, self.routine = self.client.new(), self.client.new()
        self.client.send(ProgramPart(self.program, RECORDS))
        self.client.send(Link(self.routine, self.program, ("cpu:0",), (), 1))
        self.client.session.files.open = lambda _reference, *, writes: OUTPUT if writes else INPUT
        self.client.session.files.may_store = self.client.session.gpu.in_place = True
        self.bare.device.cuda_number = 0
        self.client.send(File(1, (FILE, "a file"), REQUEST), File(3, (FILE, "a file"), REQUEST, writes=True))
        self.client.publish("kept", ids=[self.tensor])
        self.client.answers.clear()

    def message(self, kind: MessageKind) -> NamedMessage:
        ids = self.tensor, self.signature, self.chain, self.program, self.routine
        return well_formed(*ids)[DECLARATIONS[kind]]

    def damaged(self, kind: MessageKind, name: str, value: Any) -> list[Any]:
        """The message with another value in one field."""
        message = self.message(kind)
        array = encode_message(message)
        array[1 + message._fields.index(name)] = value
        return array

    def state(self) -> Any:
        session, engine = self.client.session, self.bare.engine
        source = session.source
        return (
            {id_: tensor for id_, tensor in session.tensors.items() if id_ < NEW},
            {**session.plans, self.signature: None},
            ({**session.programs}, {**session.routines}),
            (dict(session.chains), list(session.files.loading), list(session.files.writing)),
            [(source.where(n), source.span(n << LINE_BITS)) for n in range(2, 5)],  # not 1, which the message redefines
            (dict(engine.directory.names), engine.residency.copies - len(session.tensors)),
            (session.cancelled, session.generation, session.account.bytes, session.payload),
        )

    def error(self) -> Exception | None:
        """The one error that the client got: the answer to its request, or a report."""
        found = [error for _, error in self.client.answers.values()] + self.bare.errors
        assert len(found) == 1
        return found[0]


@each_case("kind", list(MessageKind), ids=lambda kind: kind.name)
def test_the_message_is_admitted_if_nothing_is_wrong(kind: MessageKind) -> None:
    scene = Scene()
    scene.client.send(scene.message(kind))
    scene.bare.drain()
    assert scene.bare.errors == []
    assert [error for _, error in scene.client.answers.values() if error is not None] == []


@each_case(("kind", "name", "text"), some_wrong_fields(set(MessageKind)))
def test_a_field_of_a_wrong_type_is_refused_by_its_name(kind: MessageKind, name: str, text: str) -> None:
    scene = Scene()
    before = scene.state()
    array = scene.damaged(kind, name, STRANGE[text])
    scene.client.send(array)
    scene.bare.drain()
    error = scene.error()
    assert isinstance(error, ProtocolError)
    assert f"the field {name!r} of a {kind.name} message is" in error.message
    assert scene.state() == before
    assert set(scene.client.session.tensors) - {scene.tensor} == set(outputs_of(array))  # poisoned
    for id_ in outputs_of(array):
        with pytest.raises(ProtocolError):
            scene.client.fetch(id_)
    assert scene.client.fetch(scene.tensor) == [1.0]


@each_case(("kind", "name", "text"), some_wrong_fields(set(MessageKind) - UNGROUPED, 1))
def test_a_group_with_such_a_field_is_refused_as_a_whole(kind: MessageKind, name: str, text: str) -> None:
    scene = Scene()
    before = scene.state()
    group = [encode_message(Location(2, "other.py:2")), scene.damaged(kind, name, STRANGE[text])]
    scene.client.send([ATOMIC, group])
    scene.bare.drain()
    assert f"the field {name!r} of a {kind.name} message is" in str(scene.error())
    assert scene.state() == before


@each_case("kind", list(MessageKind), ids=lambda kind: kind.name)
def test_a_field_too_few_or_too_many_is_refused(kind: MessageKind) -> None:
    for change in (lambda array: array[:-1], lambda array: [*array, 0]):
        scene = Scene()
        before = scene.state()
        scene.client.send(change(encode_message(scene.message(kind))))
        scene.bare.drain()
        error = scene.error()
        assert isinstance(error, ProtocolError)
        assert f"a {kind.name} message has {len(FIELDS[kind])} fields after its kind" in error.message
        assert scene.state() == before


@each_case("output", [float("nan"), 60.0, True, 2**63, -1, 0, None, "x"])
def test_no_result_has_an_id_that_is_none(output: Any) -> None:
    """NaN as the newest id would let all ids be given again."""
    scene = Scene()
    before = scene.state()
    scene.client.send([CALL, scene.signature, (scene.tensor, 1.0), (output,), 0, 1])
    scene.bare.drain()
    assert "the field 'outputs' of a CALL message is" in str(scene.error())
    assert scene.state() == before
    assert set(scene.client.session.tensors) == {scene.tensor}


@each_case("inline", [True, False])
def test_the_last_of_64_operands_has_its_bit(inline: bool) -> None:
    bare = Bare(inline=inline)
    client = bare.client()
    ids = [client.upload([float(n)]) for n in range(64)]
    client.send(Call(client.signature("stack", (ONE,) * 64), tuple(ids), (client.new(),), 1 << 63, 1))
    bare.drain()
    assert bare.errors == []
    assert set(client.session.tensors) == {*ids[:-1], client.ids}


def test_a_refused_signature_stands_for_its_error_and_not_for_what_had_its_number() -> None:
    scene = Scene()
    client, number = scene.client, scene.signature
    client.send([*encode_message(Signature(number, "multiply", (), (ONE, "float"), "cpu:0", None))[:-1], 5])
    assert client.session.operands == 0
    client.send(Call(number, (scene.tensor, 1.0), (NEW,), 0, 1))
    with pytest.raises(ProtocolError, match="the field 'targets' of a SIGNATURE message is 5") as caught:
        client.fetch(NEW)
    assert (caught.value.op, caught.value.location) == ("multiply", "user.py:1")


def test_a_refused_signature_with_a_number_beyond_the_limit_is_not_kept() -> None:
    client = Bare().client(signatures=3)
    client.send(Signature(4, "add", (), (ONE, ONE), "cpu:0", None))
    assert client.session.plans == {}


def test_every_role_that_names_tensors_is_declared_where_it_should_be() -> None:
    """A field whose type is about ids has a role, so that no list of ids is overlooked."""
    examples = well_formed(7, 9, 8, 6, 5).values()
    mentioned = [ids_of(encode_message(message)) for message in examples]
    assert all(set(ids) <= {7, 6, 5, NEW} for ids in mentioned)
    assert {Role.USED, Role.NEW, Role.WRITTEN} <= {field.role for form in FIELDS.values() for field in form.values()}
