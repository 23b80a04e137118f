"""Declarations of messages, and all that is derived from them: forms, ids by role, and the table in docs/wire.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.codec import Encoder, decode
from tensord.interpreter.wire.fields import Role
from tensord.interpreter.wire.file_messages import Checkpoint, File, Flush, Load, Restore, Write
from tensord.interpreter.wire.forms import FIELDS, check_group, decode_message, name_fields
from tensord.interpreter.wire.message_kinds import ATOMIC, CALL, MessageKind
from tensord.interpreter.wire.messages import (
    DECLARATIONS,
    KINDS,
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
    mark_released,
)
from tensord.interpreter.wire.node_messages import Collective, Recv, Send
from tensord.interpreter.wire.program_messages import Convention, Link, ProgramPart, Run
from tensord.interpreter.wire.roles import ids_of, number_of, outputs_of, signatures_of

from ...each_case import each_case

DOCUMENT = Path(__file__).parents[3] / "docs" / "wire.md"
PAYLOAD = np.ones(4)

# An example of each kind: the message, the ids that it uses, the ids that it defines or overwrites, request, location.
EXAMPLES: list[tuple[NamedMessage, list[int], list[int], int, int]] = [
    (Call(9, (1, 2.5, True, 2), (3,), 1, 70), [1, 2], [3], 0, 70),
    (Release((1, 2)), [1, 2], [], 0, 0),
    (Upload(3, (4,), "float64", "cpu:0", PAYLOAD, 70), [], [3], 0, 70),
    (Fetch(1, 60, 70, 3), [1], [3], 60, 70),
    (Wait((1, 2), 60, 70), [1, 2], [], 60, 70),
    (Sync(60, 70), [], [], 60, 70),
    (Effect((1, 2), 9, None, 60, 70), [1, 2], [], 60, 70),
    (Chain(9), [], [], 0, 0),
    (Signature(9, "add", (), (None, None), "cpu:0", None), [], [], 0, 0),
    (Location(9, "user.py:3"), [], [], 0, 0),
    (Publish(("a", "b"), (1, 2), 60), [1, 2], [], 60, 0),
    (Lookup(("a", "b"), (3, 4), 60, snapshot=False), [], [3, 4], 60, 0),
    (Unpublish(("a",), 60), [], [], 60, 0),
    (ToDevice(1, 3, "sim:0", 70), [1], [3], 0, 70),
    (Restart(9), [], [], 0, 0),
    (Atomic([[CALL, 9, (1,), (3,), 0, 70], encode_message(ToDevice(3, 4, "cpu:0", 70))]), [1, 3], [3, 4], 0, 0),
    (ListNames(60), [], [], 60, 0),
    (Query("stats", (1,), 60), [], [], 60, 0),
    (Span(9, ("epoch 1", "step 37")), [], [], 0, 0),
    (ProgramPart(9, (("return", ()),)), [9], [], 0, 0),
    (Link(8, 9, ("cpu:0",), (1, 2), 70), [8, 9, 1, 2], [], 0, 70),
    (Run(8, (1, 2), (2.5, 3), (3, 4), ((7, None, 60),), 70), [8, 1, 2], [3, 4], 0, 70),
    (Convention(8, ("f", (), (), (), (), ("fixed", None, None))), [8], [], 0, 0),
    (Hint(1, "prefetch", "sim:0", 70), [1], [], 0, 70),
    (File(8, (5, "model.safetensors"), 60), [], [], 60, 0),
    (Load(8, (3, 4), ((), ()), "sim:0", own=False, digest=True, location=70), [], [3, 4], 0, 70),
    (Write(8, (1, 2), (0, 64), 70), [1, 2], [], 0, 70),
    (Flush(8, 60), [], [], 60, 0),
    (Checkpoint("/there", ("a",), 2, 60, 70), [], [], 60, 70),
    (Restore("/there", 0, ("a",), deep=True, request=60), [], [], 60, 0),
    (Share(1, 60, 70, 3), [1], [3], 60, 70),
    (Collective("all_reduce", (1, 2), (3, 4), (), {}, 70), [1, 2], [3, 4], 0, 70),
    (Send(1, "node1", bytes(16), 70), [1], [], 0, 70),
    (Recv(3, (2,), "float64", "cpu:0", "node1", bytes(16), 70), [], [3], 0, 70),
]
IDS = [type(row[0]).__name__ for row in EXAMPLES]


def test_every_kind_has_a_declaration_and_an_example() -> None:
    assert list(DECLARATIONS) == list(MessageKind)
    assert [type(message) for message, *_ in EXAMPLES] == list(DECLARATIONS.values())


@each_case("message", [row[0] for row in EXAMPLES], ids=IDS)
def test_a_message_travels_as_its_kind_and_its_fields(message: NamedMessage) -> None:
    array = encode_message(message)
    assert type(array) is list
    assert array == [KINDS[type(message)], *message]
    assert (decode_message(array), decode_message(tuple(array))) == (message, message)
    assert type(decode_message(array)) is type(message)
    if type(message) is not Upload:  # its payload travels beside the header
        packed = Encoder().encode(array)
        assert Encoder().encode(encode_message(decode_message(decode(packed, 1 << 10)))) == packed


@each_case(("message", "used", "made", "request_", "location"), EXAMPLES, ids=IDS)
def test_ids_are_found_by_their_roles(
    message: NamedMessage, used: list[int], made: list[int], request_: int, location: int
) -> None:
    array = encode_message(message)
    assert ids_of(array, {Role.USED}) == used
    assert ids_of(array, {Role.NEW, Role.WRITTEN}) == made
    assert sorted(ids_of(array)) == sorted(used + made)
    assert number_of(array, Role.REQUEST) == request_
    assert number_of(array, Role.LOCATION) == location


def test_an_absent_export_is_no_id() -> None:
    assert ids_of(encode_message(Fetch(1, 60, 70, export=0))) == [1]


def test_a_message_that_is_answered_leaves_no_outputs_to_poison() -> None:
    assert outputs_of(encode_message(Lookup(("a",), (3,), 60, snapshot=False))) == []
    assert outputs_of(encode_message(Fetch(1, 0, 70, export=3))) == []
    assert outputs_of(encode_message(ToDevice(1, 3, "sim:0", 70))) == [3]


@each_case("message", [Sync(True, 70), Fetch(True, 60, 70, 3), Fetch(1, 60, True, 3), Release((True,))])
def test_a_truth_value_is_no_number(message: NamedMessage) -> None:
    with pytest.raises(ProtocolError):
        decode_message(encode_message(message))


@each_case("array", [None, 5, "CALL", [], [99, 1], [True, 1], [1.0, (1,)], {3: 1}, [[3], 1], [ATOMIC, 5]])
def test_nothing_is_found_in_what_is_no_message(array: Any) -> None:
    assert (ids_of(array), outputs_of(array), signatures_of(array)) == ([], [], [])
    assert (number_of(array, Role.REQUEST), number_of(array, Role.LOCATION)) == (0, 0)
    with pytest.raises(ProtocolError):
        decode_message(array)


def test_a_damaged_field_counts_as_absent_and_the_others_do_not() -> None:
    upload = encode_message(Upload(3, (4,), "float64", "cpu:0", PAYLOAD, 70))
    for damaged, outputs, location in [
        ([*upload[:5], None, 70], [3], 70),
        ([upload[0], "3", *upload[2:]], [], 70),
        ([*upload[:6], []], [3], 0),
        (upload[:4], [3], 0),
        ([*upload, 1], [3], 70),
    ]:
        assert (outputs_of(damaged), number_of(damaged, Role.LOCATION)) == (outputs, location)


def test_a_group_in_a_group_is_not_looked_into() -> None:
    inner = [ATOMIC, [[CALL, 9, (1,), (3,), 0, 70]]]
    assert ids_of([ATOMIC, [inner, [CALL, 9, (2,), (4,), 0, 70]]]) == [2, 4]


def test_the_signatures_of_a_message_are_those_with_a_number() -> None:
    damaged = [8, 5, None, (), (), "cpu:0", None]
    assert [one.number for one in signatures_of([ATOMIC, [damaged, [8, "x", "add", (), (), "cpu:0", None]]])] == [5]
    assert signatures_of([8, 0, "add", (), (), "cpu:0", None])[0].op == "add"


def test_a_group_is_checked_whole() -> None:
    call = [CALL, 9, (1,), (3,), 0, 70]
    check_group([call, [1, (3,)]])
    with pytest.raises(ProtocolError, match="the field 'outputs' of a CALL message is 3"):
        check_group([call, [CALL, 9, (1,), 3, 0, 70]])
    with pytest.raises(ProtocolError, match="a group holds no SYNC message"):
        check_group([call, [5, 1, 0]])


def test_a_group_travels_as_arrays() -> None:
    call = [CALL, 9, (1,), (3,), 0, 70]
    assert encode_message(Atomic([call, Release((3,))])) == [ATOMIC, [call, [1, (3,)]]]


def test_fields_get_names_before_they_are_checked_if_kind_and_number_are_right() -> None:
    upload: Any = name_fields((2, 3, "shape", 5, None, None, 0), Upload)
    assert upload is not None
    assert upload.shape == "shape"
    assert name_fields((2, 3, "shape"), Upload) is None
    assert name_fields((1, (3,)), Upload) is None
    assert name_fields(None, Upload) is None


def test_releases_are_marked_in_a_call_array() -> None:
    call = [CALL, 9, (1, 2), (3,), 0, 70]
    mark_released(call, 0b10)
    mark_released(call, 0b100)
    assert decode_message(call) == Call(9, (1, 2), (3,), 0b110, 70)


# -- the document ------------------------------------------------------------------------------------------------------


def named_by(kind: MessageKind, *roles: Role) -> str:
    """The fields of a kind with one of these roles, for the document."""
    found = [(name, field.role) for name, field in FIELDS[kind].items() if field.role in roles]
    return ", ".join(f"`{name}`" + " (or overwrites)" * (role is Role.WRITTEN) for name, role in found)


def table() -> str:
    """The table of messages in docs/wire.md."""
    rows = ["| kind | message | uses | defines |", "|---|---|---|---|"]
    for kind in MessageKind:
        fields = ", ".join([str(int(kind)), *FIELDS[kind]])
        defines = named_by(kind, Role.NEW, Role.WRITTEN)
        rows.append(f"| {int(kind)} {kind.name} | `[{fields}]` | {named_by(kind, Role.USED)} | {defines} |")
    return "\n".join(rows) + "\n"


def test_the_table_in_the_document_is_what_is_declared() -> None:
    assert table() in DOCUMENT.read_text(), f"docs/wire.md needs this table:\n{table()}"
