"""An engine without threads, and clients that send it messages: streams execute on a test's command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.types.device_names import on_node
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.messages import (
    KINDS,
    Call,
    Fetch,
    Location,
    Lookup,
    Publish,
    Release,
    Signature,
    ToDevice,
    Upload,
    encode_message,
)
from tensord.streams.disk.store import NAME as STORE
from tensord.streams.disk.store import StoreOptions
from tensord.streams.host.cpu import CpuOptions
from tensord.vm.engine import Engine
from tests.model.streams import ModelCpu, ModelStore, Steering

ONE = ((1,), "float64")


class Bare:
    """An engine on one cpu device with `workers` streams, which run nothing by themselves."""

    def __init__(self, *, workers: int = 1, inline: bool = True, node: str = "", **options: Any) -> None:
        self.now = 0
        steering = Steering(self.clock, frozenset(), inline=inline, events=False)
        cpu = CpuOptions(workers=workers, memory=1 << 24)
        self.device: Any = ModelCpu(on_node(node, "cpu:0"), self.sink, cpu, steering)
        self.store: Any = ModelStore(STORE, self.sink, StoreOptions(), steering)
        self.engine: Engine = Engine({self.device.name: self.device, STORE: self.store}, self.clock, **options)
        self.errors: list[TensordError] = []
        self.engine.report = lambda _session, error: self.errors.append(error)

    def sink(self, tasks: Sequence[Any]) -> None:
        self.engine.finished.extend(tasks)

    def clock(self) -> int:
        self.now += 1
        return self.now

    def client(self, **limits: int) -> Client:
        return Client(self, Limits(**limits))

    def schedule(self) -> None:
        while self.engine.schedule():
            pass

    def step(self, stream: Any) -> Any:
        """Execute and report one task of a stream; returns the task's session."""
        author = stream.waiting[0].author
        stream.execute()
        stream.report(1)
        self.schedule()
        return author

    def drain(self) -> None:
        """Run all streams until they are idle."""
        self.schedule()
        streams = (*self.device.streams, *self.store.streams)
        while busy := [stream for stream in streams if stream.can_execute()]:
            self.step(busy[0])


def array_of(message: Any) -> Any:
    """A message as it travels; an array is one already."""
    return encode_message(message) if type(message) in KINDS else message


class Client:
    """A session of a bare engine, its answers by request, and frequent messages."""

    def __init__(self, bare: Bare, limits: Limits) -> None:
        self.bare = bare
        self.answers: dict[int, tuple[Any, TensordError | None]] = {}
        self.session = bare.engine.open_session(self.keep, limits=limits)
        self.ids = 0
        self.requests = 0
        self.signatures = 0
        self.send(Location(1, "user.py:1"))

    def keep(self, request: int, value: object, error: TensordError | None) -> None:
        self.answers[request] = (value, error)

    def send(self, *messages: Any) -> None:
        """Send a batch, of named messages or arrays, and have it admitted."""
        self.bare.engine.receive(self.session, [array_of(message) for message in messages])
        self.bare.schedule()

    def new(self) -> int:
        self.ids += 1
        return self.ids

    def upload_message(self, values: Any) -> Upload:
        array = np.array(values, np.float64)
        return Upload(self.new(), array.shape, "float64", "cpu:0", array, 1)

    def upload(self, values: Any) -> int:
        self.send(self.upload_message(values))
        return self.ids

    def signature(self, op: str, metas: Sequence[Any], attributes: Any = (), targets: Any = None) -> int:
        self.signatures += 1
        self.send(Signature(self.signatures, op, attributes, metas, "cpu:0", targets))
        return self.signatures

    def call(self, op: str, *ids: int, out: int = 0, meta: Any = ONE, released: int = 0) -> int:
        """An op on operands of one meta; the id of its result."""
        number = self.signature(op, (meta,) * len(ids), (), (meta,) if out else None)
        result = out or self.new()
        self.send(Call(number, ids, (result,), released, 1))
        return result

    def ask(self, message: Any) -> Any:
        """Send a message with a request number; returns the answer, once all instructions have run."""
        self.requests += 1
        self.send(message._replace(request=self.requests))
        self.bare.drain()
        value, error = self.answers[self.requests]
        if error is not None:
            raise error
        return value

    def fetch(self, id_: int) -> list[float]:
        found: list[float] = self.ask(Fetch(id_, 0, 1, 0)).tolist()
        return found

    def publish(self, *names: str, ids: Sequence[int]) -> None:
        self.ask(Publish(names, tuple(ids), 0))

    def lookup(self, name: str, *, snapshot: bool = False) -> int:
        self.ask(Lookup((name,), (self.new(),), 0, snapshot))
        return self.ids

    def to_device(self, id_: int) -> int:
        self.send(ToDevice(id_, self.new(), "cpu:0", 1))
        return self.ids

    def release(self, *ids: int) -> None:
        self.send(Release(ids))
        self.bare.drain()
