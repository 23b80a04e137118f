"""The messages that a session sends: one declaration per kind, from which everything about its layout is derived.

A message is sent as the msgpack array [kind, *fields]. `encode_message` makes that array from a named message;
`forms.decode_message` checks an untrusted array and makes the named message, once, at admission. An embedded machine
gets the same arrays, without msgpack. The declarations define the checks of untrusted values and the errors about them
(`forms`), the limits of fields (`forms.LIMITED_FIELDS`), the ids, the request and the location in any message
(`roles`), and the table in docs/wire.md, which a test compares. The declarations about programs, files and nodes are in
files of their own (`program_messages`, `file_messages`, `node_messages`).

On the hot path, a CALL stays an array: see `mark_released`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias, get_args

from . import fields
from .fields import SEQUENCES
from .file_messages import Checkpoint, File, Flush, Load, Restore, Write
from .message_kinds import ATOMIC, MessageKind
from .node_messages import Collective, Recv, Send
from .program_messages import Convention, Link, ProgramPart, Run

Message: TypeAlias = tuple[Any, ...] | list[Any]  # as it is sent


class Call(NamedTuple):
    """Run an op.

    Bit k of `released` says that the handle of operand k (inputs, then outputs) was dropped before the batch left: the
    operand is released by this very instruction, even if it is skipped. `inputs` are ids, or scalars where the
    signature says so.
    """

    signature: fields.SignatureNumber
    inputs: fields.Operands
    outputs: fields.WrittenIds
    released: fields.Bits
    location: fields.LocationNumber


class Release(NamedTuple):
    """Drop the handles of tensors and of chains."""

    ids: fields.UsedIds


class Upload(NamedTuple):
    """Make a tensor of bytes. `payload` is a packed array without another user; in process it may be one on a GPU."""

    output: fields.NewId
    shape: fields.Shape
    dtype: fields.Text
    device: fields.Text
    payload: fields.Payload
    location: fields.LocationNumber


class Fetch(NamedTuple):
    """Answer with a value. `export` is the new id of the fetched value, which may be read in place; 0 is none."""

    id: fields.UsedId
    request: fields.Request
    location: fields.LocationNumber
    export: fields.NewIdOrZero


class Wait(NamedTuple):
    """Answer with metas and devices once the values exist."""

    ids: fields.OneOrMoreIds
    request: fields.Request
    location: fields.LocationNumber


class Sync(NamedTuple):
    """Answer once all earlier messages have ended."""

    request: fields.Request
    location: fields.LocationNumber


class Effect(NamedTuple):
    """Call a function of the user's with values, in the order of the chain.

    `callback` exists only in process; if it is None, the request is answered with the values. `tolerant`: the error of
    a failed value takes its place, and the chain goes on. `again`: the request stays open, for a step in a block that
    may run any number of times.

    With `outputs` the effect is a host call: the function's results, of these `metas`, become tensors on the device. A
    CALL answer asks the client to call the function, and the client sends the results in a RETURN header. The `chain`
    of a host call is 0, or a chain whose newest effect the call follows without joining the chain.
    """

    ids: fields.UsedIds
    chain: fields.ChainIdOrZero
    callback: fields.Callback
    request: fields.Request
    location: fields.LocationNumber
    tolerant: fields.Flag = False
    again: fields.Flag = False
    outputs: fields.NewIds = ()
    metas: fields.Metas = ()
    device: fields.Text = ""


class Chain(NamedTuple):
    """Define a chain."""

    chain: fields.ChainId


class Signature(NamedTuple):
    """Give a number to an op with its attributes, the metas of its operands and its device.

    `targets` are the metas of the tensors that the op writes; None for an op that makes new ones. A meta travels as
    (shape, dtype name), a scalar's as the name of its Python type, a pending one as None.
    """

    number: fields.NewSignatureNumber
    op: fields.Text
    attributes: fields.Attributes
    metas: fields.Metas
    device: fields.Text
    targets: fields.Targets


class Location(NamedTuple):
    """Give a number to a line of the user's code."""

    number: fields.NewLocationNumber
    text: fields.LocationText


class Span(NamedTuple):
    """Give a number to the names of the open spans, the outermost first; see `locations`."""

    number: fields.NewSpanNumber
    path: fields.SpanPath


class Publish(NamedTuple):
    """Give names to tensors and routines. `durable`: the names survive the machine."""

    names: fields.Names
    ids: fields.UsedIds
    request: fields.Request
    durable: fields.Flag = False


class Lookup(NamedTuple):
    """Define ids for named tensors, and for the tensors that named routines capture.

    Answered with a description of the tensor or routine of each name. If the number of `ids` is wrong, nothing is
    defined, and the answer is the right number. `snapshot`: the ids have the present versions of the tensors, which
    later writes do not change.
    """

    names: fields.Names
    ids: fields.NewIds
    request: fields.Request
    snapshot: fields.Flag


class Unpublish(NamedTuple):
    """Remove published names."""

    names: fields.Names
    request: fields.Request


class ToDevice(NamedTuple):
    """Make a tensor of the same value on another device."""

    id: fields.UsedId
    output: fields.NewId
    device: fields.Text
    location: fields.LocationNumber


class Restart(NamedTuple):
    """Admit instructions again after a cancel. `generation`: the number of cancels that the client knows of."""

    generation: fields.Generation


class Atomic(NamedTuple):
    """Admit messages with none of another session's between them. None of them is of a kind in `UNGROUPED`."""

    messages: fields.Group


class ListNames(NamedTuple):
    """Answer with the published names."""

    request: fields.Request


class Query(NamedTuple):
    """Answer a question about the machine."""

    what: fields.Text
    arguments: fields.Arguments
    request: fields.Request


class Hint(NamedTuple):
    """A placement hint for a tensor's value. `what` is "pin", "unpin", "evict" or "prefetch".

    `device`: the target of a prefetch; empty for the tensor's home, and always for the other hints. "host" is a cpu
    device that has the value, by default the first cpu device.
    """

    id: fields.UsedId
    what: fields.HintName
    device: fields.Text
    location: fields.LocationNumber


class Share(NamedTuple):
    """Answer with a block of the memory of a GPU, the value's home, in which the client reads the value.

    `export`: a new id of the value; until the id is released, the block holds the value.
    """

    id: fields.UsedId
    request: fields.Request
    location: fields.LocationNumber
    export: fields.NewId


# In the order of their numbers.
NamedMessage: TypeAlias = (
    Call
    | Release
    | Upload
    | Fetch
    | Wait
    | Sync
    | Effect
    | Chain
    | Signature
    | Location
    | Publish
    | Lookup
    | Unpublish
    | ToDevice
    | Restart
    | Atomic
    | ListNames
    | Query
    | Span
    | ProgramPart
    | Link
    | Run
    | Convention
    | Hint
    | File
    | Load
    | Write
    | Flush
    | Checkpoint
    | Restore
    | Share
    | Collective
    | Send
    | Recv
)

DECLARATIONS: dict[MessageKind, type[NamedMessage]] = dict(zip(MessageKind, get_args(NamedMessage), strict=True))
_PAYLOAD_INDEX = Upload._fields.index("payload") + 1
KINDS: dict[type[NamedMessage], int] = {declaration: int(kind) for kind, declaration in DECLARATIONS.items()}


def encode_message(message: NamedMessage) -> list[Any]:
    """A message as it travels: a list, which the sender may still change. A group holds arrays or named messages."""
    if type(message) is Atomic:
        return [ATOMIC, [inner if type(inner) in SEQUENCES else encode_message(inner) for inner in message.messages]]
    return [KINDS[type(message)], *message]


def with_payload(upload: Message, payload: Any) -> list[Any]:
    """The array of an UPLOAD message with that payload, or None where the payload travels beside it."""
    array = [*upload]
    array[_PAYLOAD_INDEX] = payload
    return array


_RELEASED_INDEX: Final = Call._fields.index("released") + 1  # its position in the array of a CALL


def mark_released(call: list[Any], operands: int) -> None:
    """Release these operands with the call: a bit for each, inputs first, then outputs.

    A CALL stays an array on the path of most ops: the client appends it and marks releases in it, and the machine runs
    it from the array (`vm/admission/inline.py`). A call on the long path through admission is a named message like all
    others. Naming each call first takes 1 of 8.7 us per op in the chain row of `python -m bench`.
    """
    call[_RELEASED_INDEX] |= operands
