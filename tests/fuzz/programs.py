"""Messages of hostile clients, drawn from any source of randomness: mostly sensible, with one or two errors.

A program is a list of steps: messages of several clients as frames, disconnects, clients that stop reading. The
writer keeps track of ids and numbers, so that most messages pass the first checks, and then corrupts some of them: a
field gets a strange value, a header loses bytes or gets wrong ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgpack
import numpy as np

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import TensordError
from tensord.interpreter.schema.opdef import REGISTRY, REQUIRED, OpDef
from tensord.interpreter.wire.fields import HINTS
from tensord.interpreter.wire.forms import name_fields
from tensord.interpreter.wire.frames import host_identity
from tensord.interpreter.wire.message_kinds import UPLOAD
from tensord.interpreter.wire.messages import (
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
from tensord.interpreter.wire.metas import decode_meta, encode_meta
from tensord.interpreter.wire.node_messages import Collective, Recv, Send

from .runs import Runs

CLIENTS: Final = (b"a", b"b")
STEPS: Final = 24
BREAK_MESSAGE: Final = 0.08
BREAK_HEADER: Final = 0.01
BREAK_BYTES: Final = 0.02  # the probability that a header's bytes are corrupted
DTYPES: Final = ("float64", "float32", "int64", "uint8", "bool", "complex128")

USUAL: Final = ("add", "add", "multiply", "negative", "sum", "matmul", "ones", "transpose", "unique_values")
NAMES: Final = ("x", "y", "weights")
QUESTIONS: Final = ("stats", "residency", "state", "trace", "status", "sessions", "tensors", "devices", "names")
INTEGERS: Final = (-(2**63), -(2**31), -2, -1, 0, 1, 2, 3, 255, 256, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
STRANGE: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0.0,
    1.0,
    2.5,
    float("nan"),
    float("inf"),
    1e308,
    "",
    "x",
    "float64",
    "cpu:0",
    "é" * 50,
    "y" * 3000,
    b"",
    bytes(8),
    [],
    {},
    [[]],
    [[1], "float64"],
    {"axis": 0},
    msgpack.ExtType(1, bytes(16)),
    msgpack.Timestamp(1),
    list(range(100)),
)

DEEP: Final = b"\x91" * 990 + b"\x90"  # too deep for Python's repr, but not for msgpack

Message = list[Any]


@dataclass(frozen=True)
class Step:
    """One event. `what`:

    "send", "begin" (send without waiting), "leave", "deaf" (stop reading) or "hears" (read again).
    """

    what: str
    client: bytes
    frames: tuple[bytes, ...] = ()


@dataclass
class Client:
    """The state of a client, as the client knows it."""

    identity: bytes
    number: int = 0
    newest: int = 0
    requests: int = 0
    tensors: dict[int, Any] = field(default_factory=dict)  # id -> meta
    signatures: dict[int, tuple[Any, list[Any], Any]] = field(default_factory=dict)  # metas, results, in place
    chains: list[int] = field(default_factory=list)
    programs: dict[int, Any] = field(default_factory=dict)  # id -> program
    parts: dict[int, list[Any]] = field(default_factory=dict)  # id -> records that have not been sent
    routines: dict[int, Any] = field(default_factory=dict)  # id -> program
    greeted: bool = False


class Writer:
    """Draws steps. `rnd`: anything with the methods of `random.Random`."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.inline = rnd.random() < 0.7  # whether kernels run at once
        self.clients = {identity: Client(identity) for identity in CLIENTS}
        self.runs = runs = Runs(self)
        self.kinds: list[Callable[[Client], NamedMessage]] = [
            self.signature,
            self.signature,
            self.call,
            self.call,
            self.call,
            self.upload,
            self.upload,
            self.fetch,
            self.fetch,
            self.share,
            self.collective,
            self.sending,
            self.receiving,
            self.wait,
            self.sync,
            self.release,
            self.effect,
            self.chain,
            self.location,
            self.span,
            self.publish,
            self.lookup,
            self.unpublish,
            self.to_device,
            self.hint,
            self.restart,
            self.group,
            self.names,
            self.query,
            *(runs.program, runs.program, runs.link, runs.link, runs.convention),
            *(runs.run, runs.run, runs.run, runs.run),
        ]

    def steps(self) -> Iterator[Step]:
        """The steps of a program, drawn while it is played: a client that has lost its session mostly sends HELLO
        again."""
        for _ in range(self.rnd.randint(2, STEPS)):
            client = self.clients[self.rnd.choice(CLIENTS)]
            if not client.greeted and self.rnd.random() < 0.95:
                yield self.hello(client)
                yield self.opening(client)
            yield self.step(client)

    def lost(self, identity: bytes) -> None:
        """The session of a client has ended."""
        self.clients[identity] = Client(identity)

    def step(self, client: Client) -> Step:
        """One step."""
        drawn = self.rnd.random()
        if drawn < 0.88:
            batch = self.batch(client)
            return replace(batch, what="begin") if self.rnd.random() < 0.2 else batch
        if drawn < 0.95:
            return self.other(client)
        if drawn < 0.96:
            return self.hello(client)
        return Step(self.rnd.choice(("leave", "deaf", "hears", "hears", "hears")), client.identity)

    # -- headers ---------------------------------------------------------------------------------------------------

    def hello(self, client: Client) -> Step:
        """HELLO."""
        client.greeted = True
        host = host_identity() if self.rnd.random() < 0.5 else ""
        return Step("send", client.identity, (pack([0, 1, "fuzz", 1, host, False, None, 0]),))

    def opening(self, client: Client) -> Step:
        """A valid batch, which makes tensors for later messages."""
        client.number += 1
        made = [self.upload(client) for _ in range(3)]
        uploads = [[position, -1, bytes(nbytes_of(upload))] for position, upload in enumerate(made)]
        linked = [one for _ in range(2) for one in self.runs.opening(client)]
        messages = [encode_message(one) for one in (*made, *(self.signature(client) for _ in range(4)), *linked)]
        return Step("send", client.identity, (pack([1, client.number, messages, uploads]),))

    def other(self, client: Client) -> Step:
        """A header that is not a batch."""
        rnd = self.rnd
        header = rnd.choice(
            (
                [2, rnd.randint(0, 3)],
                [3, rnd.choice(INTEGERS)],
                [4, rnd.randint(0, 5)],
                [5],
                [6, rnd.randint(0, 3), rnd.randint(-1, 40), rnd.choice((1, 4096, 2**63 - 1))],
                [6, rnd.randint(0, 3), -1, 0],
                [rnd.randint(0, 30), *(self.strange() for _ in range(rnd.randint(0, 7)))],
                [0, 1, "again", 1, "", False, rnd.choice((None, bytes(16))), 0],
            )
        )
        return Step("send", client.identity, (self.bytes_of(self.broken(header, BREAK_HEADER)),))

    def batch(self, client: Client) -> Step:
        """A BATCH with its uploads."""
        rnd = self.rnd
        client.number += 1
        number = client.number if rnd.random() < 0.98 else rnd.choice(INTEGERS)
        messages: list[Any] = []
        uploads: list[Any] = []
        payloads: list[Any] = []
        for position in range(rnd.randint(1, 6)):
            message = self.message(client)
            messages.append(message)
            group = name_fields(message, Atomic)
            for inner, one in [(-1, message)] if group is None else list(enumerate(group.messages)):
                upload = name_fields(one, Upload)
                if upload is not None:
                    uploads.append([position, inner, self.place(upload, payloads)])
        messages = [message if message[0] == UPLOAD else self.broken(message, BREAK_MESSAGE) for message in messages]
        uploads = [self.broken(upload, BREAK_HEADER) for upload in uploads]
        header = self.broken([1, number, messages, uploads], BREAK_HEADER)
        return Step("send", client.identity, (self.bytes_of(header), *payloads))

    def place(self, upload: Upload, payloads: list[bytes]) -> Any:
        """The place of an upload's bytes."""
        rnd = self.rnd
        count = nbytes_of(upload) + (rnd.random() < 0.01)
        content = bytes(rnd.getrandbits(8) for _ in range(min(count, 64))).ljust(count, b"\0")
        drawn = rnd.random()
        if drawn < 0.5:
            return content
        if drawn < 0.98:
            payloads.append(content)
            return len(payloads) - 1
        return rnd.choice(([rnd.randint(0, 3), 0], [1, rnd.choice(INTEGERS)], rnd.randint(0, 3), -1, None))

    # -- messages --------------------------------------------------------------------------------------------------

    def message(self, client: Client) -> Message:
        """Any message, as an array that may still be broken."""
        return encode_message(self.rnd.choice(self.kinds)(client))

    def signature(self, client: Client) -> Signature:
        """A signature of an existing op, on metas that are often correct."""
        rnd = self.rnd
        number = rnd.randint(1, 8)
        op = REGISTRY[rnd.choice(USUAL if rnd.random() < 0.6 else tuple(REGISTRY))]
        name = op.name
        count = op.inputs if op.inputs >= 0 else rnd.randint(1, 3)
        meta = self.meta(client)
        others = (None, "float", "float", "int", self.meta(client))
        metas = [meta if rnd.random() < 0.8 else rnd.choice(others) for _ in range(count)]
        needed = {one.name for one in op.attributes if one.default is REQUIRED}
        attributes = {
            one.name: self.attribute(one.name) for one in op.attributes if one.name in needed or rnd.random() < 0.3
        }
        results = results_of(op, metas, attributes)
        targets = results if rnd.random() < 0.25 else None
        client.signatures[number] = (metas, results, targets)
        given: Any = attributes if rnd.random() < 0.5 else list(map(list, attributes.items()))
        return Signature(number, name, given, metas, "cpu:0", targets)

    def attribute(self, name: str) -> Any:
        """A value for an attribute."""
        rnd = self.rnd
        if rnd.random() < 0.1:
            return self.strange()
        if name == "dtype":
            return rnd.choice((None, *DTYPES))
        if name == "shape":
            return self.shape()
        if name in {"axis", "axes"}:
            return rnd.choice((None, 0, -1, 1, [0], [0, 1], [1, 0]))
        if name == "index":
            return rnd.choice(([0], [["slice", 0, 1, None]], [None, 0], ["..."], 0, [[0, 1]]))
        return rnd.choice((0, 1, 2, 5, -1, True, False, None, 1.5, "ij,jk->ik"))

    def call(self, client: Client) -> Call:
        """A call of a signature, which may exist."""
        rnd = self.rnd
        number = rnd.choice((*client.signatures, 9))
        metas, results, targets = client.signatures.get(number, ([None], [None], None))
        inputs = [rnd.choice((1, 2.5, 0)) if isinstance(meta, str) else self.known(client, meta) for meta in metas]
        outputs = [self.known(client, meta) for meta in targets] if targets else [self.new(client, m) for m in results]
        released = rnd.choice((0, 0, 0, 0, 1, 2, 3, rnd.getrandbits(4)))
        return Call(number, inputs, outputs, released, rnd.randint(0, 2))

    def upload(self, client: Client) -> Upload:
        """An upload, whose bytes `batch` places."""
        meta = self.meta(client)
        payload: Any = None
        return Upload(self.new(client, meta), meta[0], meta[1], "cpu:0", payload, self.rnd.randint(0, 2))

    def fetch(self, client: Client) -> Fetch:
        """A fetch, with or without an export."""
        export = self.new(client, None) if self.rnd.random() < 0.2 else 0
        return Fetch(self.known(client), self.request(client), 0, export)

    def share(self, client: Client) -> Share:
        """A value in the memory of a GPU, although there is no GPU."""
        return Share(self.known(client), self.request(client), 0, self.new(client, None))

    def collective(self, client: Client) -> Collective:
        """A collective on existing tensors, mostly with an error."""
        rnd, ids = self.rnd, [self.known(client) for _ in range(self.rnd.choice((1, 1, 1, 2)))]
        kind = rnd.choice(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "gossip"))
        attributes = {rnd.choice(("axis", "reduction", "merge", "timeout")): rnd.choice((0, "sum", "copy", -1, 2**62))}
        devices = ["cpu:0"] * rnd.choice((0, 1)) if kind != "broadcast" else ["cpu:0"]
        made = [self.new(client, None) for _ in range(rnd.choice((len(ids), len(ids), 3)))]
        return Collective(kind, ids, made, devices, rnd.choice(({}, attributes)), rnd.randint(0, 2))

    def sending(self, client: Client) -> Send:
        """A value for another node or this one, which may or may not receive it."""
        return Send(self.known(client), self.node(), self.transfer(), self.rnd.randint(0, 2))

    def receiving(self, client: Client) -> Recv:
        """A value from another node or this one."""
        shape, dtype = self.rnd.choice(((1,), (2, 3), (2**62, 2))), self.rnd.choice(("float64", "int8", "float1"))
        return Recv(self.new(client, None), shape, dtype, "cpu:0", self.node(), self.transfer(), self.rnd.randint(0, 2))

    def node(self) -> str:
        return self.rnd.choice(("node0", "node1", ""))

    def transfer(self) -> bytes:
        return bytes([self.rnd.randrange(4)]) * 16

    def wait(self, client: Client) -> Wait:
        """A wait for some tensors."""
        return Wait([self.known(client) for _ in range(self.rnd.randint(1, 3))], self.request(client), 0)

    def sync(self, client: Client) -> Sync:
        """A wait for all earlier messages."""
        return Sync(self.request(client), 0)

    def release(self, client: Client) -> Release:
        """A release of some tensors, perhaps twice."""
        ids = [self.known(client) for _ in range(self.rnd.randint(0, 3))]
        for id_ in ids:
            if self.rnd.random() < 0.8:
                client.tensors.pop(id_, None)
        if client.routines and self.rnd.random() < 0.2:
            ids.append(self.rnd.choice((*client.routines, *client.programs)))
        return Release(ids)

    def effect(self, client: Client) -> Effect:
        """A side effect in a chain, which may exist."""
        chain = self.rnd.choice(client.chains or [1])
        return Effect([self.known(client) for _ in range(self.rnd.randint(0, 2))], chain, None, self.request(client), 0)

    def chain(self, client: Client) -> Chain:
        """A chain."""
        client.chains.append(self.new(client, None))
        return Chain(client.chains[-1])

    def location(self, client: Client) -> Location:  # noqa: ARG002 - as the others
        """A location."""
        return Location(self.rnd.randint(0, 3), f"fuzz.py:{self.rnd.randint(1, 9)}")

    def span(self, client: Client) -> Span:  # noqa: ARG002 - as the others
        """The names of open spans."""
        return Span(self.rnd.randint(1, 3), ["step"] * self.rnd.randint(0, 3))

    def publish(self, client: Client) -> Publish:
        """Names for tensors and routines."""
        names = [self.rnd.choice(NAMES) for _ in range(self.rnd.randint(0, 3))]
        ids = [self.known(client) for _ in names]
        if ids and client.routines and self.rnd.random() < 0.5:
            ids[0] = self.rnd.choice(tuple(client.routines))
        return Publish(names, ids, self.request(client))

    def lookup(self, client: Client) -> Lookup:
        """A lookup of tensors by name, and of those that routines capture."""
        names = [self.rnd.choice(NAMES) for _ in range(self.rnd.randint(0, 2))]
        count = len(names) if self.rnd.random() < 0.7 else self.rnd.randint(0, 3)
        ids = [self.new(client, None) for _ in range(count)]
        return Lookup(names, ids, self.request(client), self.rnd.random() < 0.5)

    def unpublish(self, client: Client) -> Unpublish:
        """A removal of names."""
        return Unpublish([self.rnd.choice(NAMES) for _ in range(self.rnd.randint(0, 2))], self.request(client))

    def to_device(self, client: Client) -> ToDevice:
        """An alias on the only device."""
        return ToDevice(self.known(client), self.new(client, None), "cpu:0", 0)

    def hint(self, client: Client) -> Hint:
        """A placement hint, mostly a valid one."""
        what = self.rnd.choice((*HINTS, *HINTS, "evict it"))
        return Hint(
            self.known(client), what, self.rnd.choice(("", "", "", "cpu:0", "cpu:7", "host")), self.rnd.randint(0, 2)
        )

    def restart(self, client: Client) -> Restart:  # noqa: ARG002 - as the others
        """A restart after a cancel."""
        return Restart(self.rnd.randint(0, 3))

    def group(self, client: Client) -> Atomic:
        """A group of messages; most of them are allowed in a group."""
        return Atomic([self.message(client) for _ in range(self.rnd.randint(0, 3))])

    def names(self, client: Client) -> ListNames:
        """A request for the published names."""
        return ListNames(self.request(client))

    def query(self, client: Client) -> Query:
        """A query."""
        arguments = [self.rnd.choice((0, 1, 5, *STRANGE)) for _ in range(self.rnd.choice((0, 0, 1, 2, 3)))]
        return Query(self.rnd.choice(QUESTIONS), arguments, self.request(client))

    # -- fields ----------------------------------------------------------------------------------------------------

    def shape(self) -> list[int]:
        """A small shape, or one that is larger than any memory."""
        if self.rnd.random() < 0.02:
            return self.rnd.choice(([0, 2**62, 2**62], [2**62], [1] * 65, [2**31, 2**31]))
        return [self.rnd.choice((0, 1, 2, 3, 3, 3, 8, 200)) for _ in range(self.rnd.choice((0, 1, 1, 2, 2, 3)))]

    def meta(self, client: Client) -> Any:
        """The meta of an existing tensor, or a new one."""
        known = [meta for meta in client.tensors.values() if meta is not None]
        if known and self.rnd.random() < 0.7:
            return self.rnd.choice(known)
        return [self.shape(), self.rnd.choice(DTYPES)]

    def known(self, client: Client, meta: Any = None) -> int:
        """An id that may exist, of that meta if possible."""
        fitting = [id_ for id_, found in client.tensors.items() if meta is None or found == meta]
        if fitting and self.rnd.random() < 0.95:
            return self.rnd.choice(fitting)
        return self.rnd.choice((*range(1, 20), *INTEGERS))

    def new(self, client: Client, meta: Any) -> int:
        """An id that is mostly new."""
        if self.rnd.random() < 0.03:
            return self.rnd.choice((*range(1, 20), *INTEGERS))
        client.newest += self.rnd.choice((0, 0, 0, 4))
        client.tensors[self.next_id(client)] = meta
        return client.newest

    def next_id(self, client: Client) -> int:
        """An id that is new."""
        client.newest += 1
        return client.newest

    def request(self, client: Client) -> int:
        """A request."""
        client.requests += 1
        return client.requests if self.rnd.random() < 0.9 else 0

    # -- breaking --------------------------------------------------------------------------------------------------

    def strange(self) -> Any:
        """Any value that msgpack can encode."""
        if self.rnd.random() < 0.1:
            value: Any = self.rnd.choice(STRANGE)
            for _ in range(self.rnd.choice((3, 10, 300))):
                value = [value]
            return value
        return self.rnd.choice(STRANGE + INTEGERS)

    def broken(self, value: Sequence[Any], chance: float) -> Any:
        """The message, or the message with an error at any depth."""
        if self.rnd.random() >= chance:
            return value
        found = list(value)
        way = self.rnd.random()
        if way < 0.1:
            return self.strange()
        if way < 0.2 or not found:
            found.insert(self.rnd.randint(0, len(found)), self.strange())
        elif way < 0.3:
            found.pop(self.rnd.randrange(len(found)))
        else:
            position = self.rnd.randrange(len(found))
            inner = found[position]
            deeper = isinstance(inner, list) and inner and self.rnd.random() < 0.6
            found[position] = self.broken(inner, 1.0) if deeper else self.strange()
        return found

    def bytes_of(self, header: Any) -> bytes:
        """The bytes of a header, perhaps with some missing or changed."""
        packed = pack(header)
        if self.rnd.random() >= BREAK_BYTES:
            return packed
        return mangled(packed, self.rnd)


def nbytes_of(upload: Upload) -> int:
    """The size of an upload; reduced if it is larger than any memory."""
    count = np.dtype(upload.dtype).itemsize
    for size in upload.shape:
        count *= size
    return min(count, 1 << 16)


def results_of(op: OpDef, metas: Sequence[Any], attributes: Any) -> list[Any]:
    """The metas of the op's results, or arbitrary ones if the op refuses the operands."""
    try:
        decoded = tuple(decode_meta(meta) for meta in metas)
        if None in decoded:
            return [None] * op.outputs
        found = op.infer(decoded, dict(op.freeze(attributes)))  # type: ignore[arg-type]  # looked at above
        return [plain(encode_meta(meta)) for meta in found]
    except (TensordError, TypeError, ValueError, KeyError, IndexError, OverflowError):
        return [metas[0] if metas and type(metas[0]) is list else None]


def plain(meta: Any) -> Any:
    """A meta in the form that `Writer` uses."""
    return None if meta is None else [list(meta[0]), meta[1]]


def mangled(packed: bytes, rnd: random.Random) -> bytes:
    """Bytes with some changed, lost or added."""
    found = bytearray(packed)
    for _ in range(rnd.randint(1, 4)):
        position = rnd.randrange(len(found) + 1)
        way = rnd.random()
        if way < 0.05:
            found[position : position + 1] = DEEP
        elif way < 0.4 and position < len(found):
            found[position] = rnd.getrandbits(8)
        elif way < 0.6:
            del found[position:]
        elif way < 0.8:
            found[position:position] = bytes(rnd.getrandbits(8) for _ in range(rnd.randint(1, 8)))
        else:
            del found[position : position + rnd.randint(1, 8)]
    return bytes(found)


def pack(value: Any) -> bytes:
    """The value in msgpack."""
    packed: bytes = msgpack.packb(value)
    return packed
