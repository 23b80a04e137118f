"""The messages that a session sends: one declaration per kind, from which everything about its layout is derived.

A message is sent as the msgpack array [kind, *fields]. `encode_message` makes that array from a named message;
`forms.decode_message` checks an untrusted array and makes the named message, once, at admission. An embedded machine
gets the same arrays, without msgpack. The declarations define the checks of untrusted values and the errors about them
(`forms`), the limits of fields (`forms.LIMITED`), the ids, the request and the location in any message (`roles`), and
the table in docs/wire.md, which a test compares.

On the hot path, a CALL stays an array: see `mark_released`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias, get_args

from ..types.meta import DTYPES, MAX_NDIM, SCALAR_TYPES, Meta, OperandMeta
from . import fields
from .fields import SEQUENCES
from .message_kinds import MessageKind

Message: TypeAlias = tuple[Any, ...] | list[Any]  # as it is sent


# Plain ints for the hot path: an IntEnum member costs several times an int in a comparison.
CALL = int(MessageKind.CALL)
RELEASE = int(MessageKind.RELEASE)
UPLOAD = int(MessageKind.UPLOAD)
FETCH = int(MessageKind.FETCH)
WAIT = int(MessageKind.WAIT)
SYNC = int(MessageKind.SYNC)
EFFECT = int(MessageKind.EFFECT)
CHAIN = int(MessageKind.CHAIN)
SIGNATURE = int(MessageKind.SIGNATURE)
LOCATION = int(MessageKind.LOCATION)
PUBLISH = int(MessageKind.PUBLISH)
LOOKUP = int(MessageKind.LOOKUP)
UNPUBLISH = int(MessageKind.UNPUBLISH)
TO_DEVICE = int(MessageKind.TO_DEVICE)
RESTART = int(MessageKind.RESTART)
ATOMIC = int(MessageKind.ATOMIC)
NAMES = int(MessageKind.NAMES)
QUERY = int(MessageKind.QUERY)
SPAN = int(MessageKind.SPAN)
PROGRAM = int(MessageKind.PROGRAM)
LINK = int(MessageKind.LINK)
RUN = int(MessageKind.RUN)
CONVENTION = int(MessageKind.CONVENTION)
HINT = int(MessageKind.HINT)
FILE = int(MessageKind.FILE)
LOAD = int(MessageKind.LOAD)
WRITE = int(MessageKind.WRITE)
FLUSH = int(MessageKind.FLUSH)
CHECKPOINT = int(MessageKind.CHECKPOINT)
RESTORE = int(MessageKind.RESTORE)
SHARE = int(MessageKind.SHARE)
COLLECTIVE = int(MessageKind.COLLECTIVE)
SEND = int(MessageKind.SEND)
RECV = int(MessageKind.RECV)

# Kinds that no atomic group may contain: groups, restarts, and requests, since no wait is possible inside a group.
UNGROUPED = frozenset(
    {ATOMIC, RESTART, FETCH, WAIT, SYNC, QUERY, LOOKUP, NAMES, FILE, FLUSH, CHECKPOINT, RESTORE, SHARE}
)


# -- the declarations --------------------------------------------------------------------------------------------------


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
    """Answer with metas and devices, once the values are there."""

    ids: fields.OneOrMoreIds
    request: fields.Request
    location: fields.LocationNumber


class Sync(NamedTuple):
    """Answer once everything that was sent before has ended."""

    request: fields.Request
    location: fields.LocationNumber


class Effect(NamedTuple):
    """Call a function of the user's with values, in the order of the chain.

    `callback` exists only in process; where it is None, the request is answered with the values. `tolerant`: where a
    value has failed, its error takes its place, and the chain goes on. `again`: the request stays open, for the effects
    of a block that may run any number of times.

    With `outputs` it is a host call: the function's results, of these `metas`, become tensors on the device. The client
    is asked by a CALL answer, and returns them in a RETURN header. `chain`: 0, or one that it comes behind.
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
    """Give a number to the names of spans that are open, the outermost first; see `locations`."""

    number: fields.NewSpanNumber
    path: fields.SpanPath


class Publish(NamedTuple):
    """Give tensors and routines names. `durable`: the names are to survive the machine."""

    names: fields.Names
    ids: fields.UsedIds
    request: fields.Request
    durable: fields.Flag = False


class Lookup(NamedTuple):
    """Define ids for named tensors, and for those that named routines capture, or (`snapshot`) for present values.

    Answered with what the names stand for. If `ids` are more or fewer than needed, nothing is defined, and the answer
    is the number that is needed.
    """

    names: fields.Names
    ids: fields.NewIds
    request: fields.Request
    snapshot: fields.Flag


class Unpublish(NamedTuple):
    """Take names away."""

    names: fields.Names
    request: fields.Request


class ToDevice(NamedTuple):
    """Make a tensor of the same value on another device."""

    id: fields.UsedId
    output: fields.NewId
    device: fields.Text
    location: fields.LocationNumber


class Restart(NamedTuple):
    """Take instructions again. `generation`: how many cancellations the client knew of."""

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


class ProgramPart(NamedTuple):
    """Add records to a program (`interpreter.programs.records`). The first part defines it, under a new id; the record
    that says what it returns ends it."""

    id: fields.UsedId
    records: fields.Arguments


class Link(NamedTuple):
    """Link a program to a device for each of its slots, and to the tensors that it captures. `name` is for people;
    `passes` are the names of those that may change the program."""

    id: fields.UsedId
    program: fields.UsedId
    devices: fields.Names
    captured: fields.UsedIds
    location: fields.LocationNumber
    name: fields.Name = ""
    passes: fields.Names = ("all",)


class Run(NamedTuple):
    """Run a routine.

    `numbers` are the values of all numbers of its program. The ids of `outputs` leave room: as many ids as the program
    has steps' results are between the newest one before and the first of them. `effects` has chain, callback and
    request of each step that prints, or has another effect, as EFFECT has them.
    """

    routine: fields.UsedId
    inputs: fields.UsedIds
    numbers: fields.Scalars
    outputs: fields.NewIds
    effects: fields.Effects
    location: fields.LocationNumber


class Convention(NamedTuple):
    """Say how a routine is called (`interpreter.programs.convention`), for those who look it up."""

    routine: fields.UsedId
    convention: fields.Arguments


class Hint(NamedTuple):
    """A placement hint for a tensor's value. `what` is "pin", "unpin", "evict" or "prefetch"; `device` is that of
    "prefetch", "host" for the first cpu device unless the value is on another one, and empty for the tensor's home."""

    id: fields.UsedId
    what: fields.HintName
    device: fields.Text
    location: fields.LocationNumber


class File(NamedTuple):
    """Open a file of tensors under a number. `place` is [descriptor of the client's, name]; an empty one forgets the
    number. Answered with what the file is recognised by: device, inode, size, time of the last write. `writes`: it is
    opened for WRITE, else for LOAD."""

    file: fields.FileNumber
    place: fields.Arguments
    request: fields.Request
    writes: fields.Flag = False


class Load(NamedTuple):
    """Define tensors that lie in an open file, one for each entry (`interpreter.files.on_wire`). `own`: they are no
    longer the file's once they have been read; `digest`: what is read again has to have the same digest."""

    file: fields.FileNumber
    outputs: fields.NewIds
    entries: fields.Arguments
    device: fields.Text
    own: fields.Flag
    digest: fields.Flag
    location: fields.LocationNumber


class Write(NamedTuple):
    """Write the values of tensors to a file, each from that offset on, packed."""

    file: fields.FileNumber
    ids: fields.UsedIds
    offsets: fields.Offsets
    location: fields.LocationNumber


class Flush(NamedTuple):
    """Answer once all that was written to the file is on the disk, or with the first error; the file is forgotten."""

    file: fields.FileNumber
    request: fields.Request


class Checkpoint(NamedTuple):
    """Write what is published to a directory of checkpoints: what stands under these names, all without. An empty
    directory is that of the durable names, and means these. The last `keep` generations are kept. Answered, once
    that is on the disk, with what was written."""

    directory: fields.Text
    names: fields.Names
    keep: fields.Count
    request: fields.Request
    location: fields.LocationNumber


class Restore(NamedTuple):
    """Publish what a generation of a checkpoint holds: the last one if the number is 0; these names of it, all without.
    `deep`: all values are read, and compared with their checksums. Answered with what was published, and what not."""

    directory: fields.Text
    generation: fields.Count
    names: fields.Names
    deep: fields.Flag
    request: fields.Request


class Share(NamedTuple):
    """Answer with the place of a value in the memory of its home, a GPU, where the client reads the value. `export` is
    the new id of that value, which stays as it is until the id is released."""

    id: fields.UsedId
    request: fields.Request
    location: fields.LocationNumber
    export: fields.NewId


class Collective(NamedTuple):
    """Compute together on tensors that are at home on different devices (`interpreter.collectives`). A new tensor is
    made on each home; by a broadcast, of one tensor, on each of the `devices`, which are empty for all other kinds.

    Over several nodes each gets the message with its own `inputs` and `outputs`, and all get the `homes` and `metas` of
    all tensors, and the name of the first of their transfers, whose steps have the names behind that. `incarnations`:
    of the daemons that are meant, in the order in which `homes` and then `devices` first name their nodes."""

    kind: fields.Name
    inputs: fields.UsedIds
    outputs: fields.NewIds
    devices: fields.Names
    attributes: fields.Attributes
    location: fields.LocationNumber
    homes: fields.Names = ()
    metas: fields.Metas = ()
    transfer: fields.TransferNameOrNone = b""
    incarnations: fields.Incarnations = ()


class Send(NamedTuple):
    """Send a value, or its error, to a node, where the RECV of the same `transfer` makes a tensor of it.
    `incarnation`: of the daemon there that is meant, 0 for any."""

    id: fields.UsedId
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0


class Recv(NamedTuple):
    """Make a tensor of the value that the SEND of the same `transfer` sends from a node. Both name the meta.
    `incarnation`: of the daemon there that is meant, 0 for any."""

    output: fields.NewId
    shape: fields.Shape
    dtype: fields.Text
    device: fields.Text
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0


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
_PAYLOAD = Upload._fields.index("payload") + 1
KINDS: dict[type[NamedMessage], int] = {declaration: int(kind) for kind, declaration in DECLARATIONS.items()}


def encode_message(message: NamedMessage) -> list[Any]:
    """A message as it travels: a list, which the sender may still change. A group holds arrays or named messages."""
    if type(message) is Atomic:
        return [ATOMIC, [inner if type(inner) in SEQUENCES else encode_message(inner) for inner in message.messages]]
    return [KINDS[type(message)], *message]


def with_payload(upload: Message, payload: Any) -> list[Any]:
    """The array of an UPLOAD message with that payload, or None where the payload travels beside it."""
    array = [*upload]
    array[_PAYLOAD] = payload
    return array


# -- metas -------------------------------------------------------------------------------------------------------------


def encode_meta(meta: OperandMeta | None) -> Any:
    """A meta as it travels."""
    if meta is None:
        return None
    if isinstance(meta, Meta):
        return meta.plain
    return meta.__name__


def decode_meta(wire: Any) -> OperandMeta | None:
    """A meta from the wire; TypeError, ValueError or KeyError if it is not one."""
    if wire is None:
        return None
    if isinstance(wire, str):
        return SCALAR_TYPES[wire]
    shape, dtype = wire
    if len(shape) > MAX_NDIM:  # before any arithmetic: a size of many dimensions is a number of many digits
        raise ValueError(f"a meta of {len(shape)} dimensions; at most {MAX_NDIM} are possible")
    if dtype not in DTYPES or not all(type(n) is int for n in shape):
        raise TypeError(f"{wire!r} is not a meta")
    return Meta.of(tuple(shape), DTYPES[dtype])


_RELEASED: Final = Call._fields.index("released") + 1  # its place in the array of a CALL


def mark_released(call: list[Any], operands: int) -> None:
    """Release these operands with the call: a bit for each, inputs first, then outputs.

    A CALL stays an array on the path of most ops: the client appends it and marks releases in it, and the machine runs
    it from the array (`vm/admission/inline.py`). A call on the long path through admission is a named message like all
    others. Naming each call first takes 1 of 8.7 us per op in the chain row of `python -m bench`.
    """
    call[_RELEASED] |= operands
