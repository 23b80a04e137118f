"""Random programs from a seed, as clients could send them.

A client here knows its handles as a real one does: metas are inferred at the call, and pending metas are unknown until
the client has waited for them. The values have the same bits for every order of evaluation: integers, and floats that
only elementwise ops and extremes read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.indexing import selects_all
from tensord.interpreter.schema.infer import check_targets, infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.fields import HINTS, HOST

from .collecting import Collecting
from .expected import Expected
from .flows import Flows
from .handles import Client, Handle
from .host_calls import FINE, RAISES, WRONG
from .offers import Offered, Offers
from .runs import Runs
from .snapshots import DIRECTORIES
from .steps import Program, Step, World

SHAPES = ((4,), (4, 4), (4, 4), (3, 4), (1, 4), (2, 4), ())
DTYPES = ("int64", "int64", "int32", "float64", "bool")
UNARY = ("negative", "square", "abs", "positive", "logical_not", "relu")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "bitwise_xor", "greater", "equal", "logical_and")
INDICES = (
    (("slice", 0, 2, None),),
    (("slice", None, None, -1),),
    (("slice", 1, None, 2),),
    (0,),
    ("...", ("slice", 0, 3, None)),
    ("...", -1),
    (None, "..."),
    (("slice", 0, 0, None),),
)
VIEWS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("getitem", {"index": index}) for index in INDICES),
    ("transpose", {}),
    ("reshape", {"shape": (-1,)}),
    ("reshape", {"shape": (2, -1)}),
    ("broadcast_to", {"shape": (4, 4)}),
    ("flip", {}),
    ("expand_dims", {"axis": 0}),
    ("squeeze", {}),
)
CROWDED = 0.2  # the memory of crowded programs, as a share of what they need without evictions
CEILINGS = 0.25  # the share of crowded programs in which each session's memory is limited, not the device's
CALLING = 1 << 20  # programs of this seed and of higher ones make host calls, too
CHECKPOINTS = 0.1  # the share of steps that a checkpoint follows, if there is a store
NAMES = ("n0", "n1", "n2")
Devices = tuple[str, ...]
SIMS: Devices = ("cpu:0", "sim:0", "sim:1")
GPUS: Devices = ("cpu:0", "cuda:0", "cuda:1")
FOUR: Devices = ("cpu:0", "sim:0", "sim:1", "sim:4", "sim:5")
LAUNCHING: Devices = ("cpu:0", "sim:2", "sim:3")  # one of these, or both, launch


class Generator:
    """Makes one program. Each `emit` method adds at least one step or returns False."""

    def __init__(
        self,
        seed: int,
        *,
        honest: bool = False,
        devices: Devices = SIMS,
        crowded: bool = False,
        collects: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.honest = honest  # only steps that the client's surface allows, and no faults
        self.seed = seed
        self.world = random_world(self.rng, devices)
        if honest:
            self.world = replace(self.world, tight=0.0, faults=())
        if crowded:
            eviction, store = self.rng.choice(("cost", "lru")), self.rng.random() < 0.5
            ceilings = devices is not GPUS and random.Random(-seed - 1).random() < CEILINGS
            self.world = replace(self.world, tight=CROWDED, eviction=eviction, store=store, ceilings=ceilings)
        self.steps: list[Step] = []
        self.sinks = [self.steps]  # the last one takes the next step; it may be that of a group or run being made
        self.count = 0  # the number of steps, including those in groups and runs
        self.failing: set[tuple[int, int]] = set()
        self.clients = [Client(n) for n in range(self.world.sessions)]
        self.names: dict[str, Handle | Offered] = {}
        self.launching = self.world.launches or (devices[1:] if devices is GPUS else ())
        self.staying: str | None = None  # the one device of the next steps, while `stay` makes them
        self.expected = Expected(self.world, self.failing)
        self.sessions = self.expected.sessions
        self.runs = Runs(self)
        self.flows = Flows(self)
        self.offers = Offers(self)
        self.collecting = Collecting(self) if collects else None
        self.risky = self.rng.random() < 0.5  # whether it has failing ops, unknown ids and cancellations
        self.reads = self.rng.choice((0.5, 1.0, 3.0))
        self.moves = self.rng.choice((0.3, 1.0, 3.0))
        self.naming = self.rng.choice((0.5, 1.0, 4.0))

    def make(self, length: int) -> Program:
        """A program of about `length` steps, at whose end all tensors are read."""
        for client in self.clients:
            for _ in range(2):
                self.upload(client)
        table = self.table()
        while self.count < length:
            client = self.rng.choice([c for c in self.clients if not c.closed])
            emit = self.rng.choices([row[1] for row in table], [row[0] for row in table])[0]
            emit(client)
            if self.world.store and self.rng.random() < CHECKPOINTS:
                self.checkpoint()
        self.finish()
        return Program(self.seed, self.world, tuple(self.steps), frozenset(self.failing))

    def table(self) -> list[tuple[float, Any]]:
        """The kinds of steps, with their weights."""
        usual = [
            (1.5, self.upload),
            (1.0, self.create),
            (3.0, self.unary),
            (4.0, self.binary),
            (3.0, self.in_place),
            (1.0, self.matmul),
            (1.5, self.reduction),
            (3.0, self.view),
            (2.5, self.setitem),
            (1.0, self.join),
            (0.7, self.where),
            (2.0 * self.moves, self.move),
            (1.0, self.hint),
            (1.2, self.dynamic),
            (1.5, self.release),
            (1.0 * self.reads, self.fetch),
            (0.5 * self.reads, self.wait),
            (0.3, self.sync),
            (0.6, self.effect),
            (0.6 * self.naming, self.publish),
            (0.6 * self.naming, self.lookup),
            (0.8 * self.naming, self.offer),
            (0.1 * self.naming, self.unpublish),
            (0.1, self.list_names),
            (1.2, self.atomic),
            (2.0, self.runs.emit),
            (0.3, self.runs.forget),
            (3.0 if self.honest else 0.6, self.flows.emit),
        ]
        risks = [
            (0.8, self.boom),
            (0.3, self.split),
            (0.0 if self.honest else 0.4, self.unknown),
            (0.8 if self.honest else 0.35, self.cancel),
            (0.1 * self.naming, self.close),
        ]
        if self.seed >= CALLING:
            usual.append((4.0, self.host_call))
        if self.collecting is not None:
            usual.append((15.0, self.collecting.emit))
        return usual + risks * self.risky + [(2.0, self.stay), (1.5, self.runs.stay)] * bool(self.launching)

    def finish(self) -> None:
        """Read every tensor, then release it, or leave its release to the session's end."""
        for client in self.clients:
            if client.closed:
                continue
            if client.cancelled:
                self.restart(client)
            ids = list(client.handles)
            self.rng.shuffle(ids)
            for id_ in ids:
                self.add(client, "FETCH", id_)
        for client in self.clients:
            if not client.closed and self.rng.random() < 0.5:
                self.add(client, "RELEASE", tuple(client.handles))

    # -- steps -----------------------------------------------------------------------------------------------------

    def add(self, client: Client, kind: str, *fields: Any) -> Step:
        """Append a step, and have the oracle execute it."""
        step = self.step(client, kind, *fields)
        self.expected.execute(step)
        self.sinks[-1].append(step)
        return step

    def step(self, client: Client, kind: str, *fields: Any, line: int = 0) -> Step:
        """A step with the next number."""
        self.count += 1
        return Step(self.count, client.number, kind, fields, line)

    def collect(self, make: Callable[[], None]) -> list[Step]:
        """The steps that `make` adds, separate from the others; the oracle has executed them one by one."""
        self.sinks.append([])
        make()
        return self.sinks.pop()

    def stay(self, client: Client) -> None:
        """Add a loop on one device that launches, in which values are used and released while others are uploaded."""
        if self.staying is not None:
            return
        usual = (self.unary, self.binary, self.binary, self.in_place, self.in_place, self.reduction)
        others = (self.upload, self.release, self.fetch, self.move, self.sync, self.wait, self.effect)
        self.staying = self.rng.choice(self.launching)
        self.upload(client)
        for _ in range(self.rng.randint(2, 10)):
            for _ in range(self.rng.randint(1, 3)):
                self.rng.choice(usual)(client)
            self.rng.choice((self.replace, self.replace, *others))(client)
        self.staying = None

    def replace(self, client: Client) -> None:
        """Use a value, release it, and upload another one, which may get its memory."""
        x = self.pick(client)
        meta = None if x is None else client.handles[x].meta
        if x is None or meta is None or not self.call(client, "add", (x, x)):
            return
        if x in client.handles:  # otherwise the call has released it
            self.add(client, "RELEASE", (x,))
            self.drop(client, x)
        self.upload(client, meta.shape, meta.dtype.name)

    def atomic(self, client: Client) -> None:
        """Add a group, often of writes to tensors that several sessions hold."""
        emits = (self.in_place, self.in_place, self.setitem, self.binary, self.view, self.release, self.upload)

        more = () if self.collecting is None else (self.collecting.emit,)

        def make() -> None:
            for _ in range(self.rng.randint(0, 6)):
                self.rng.choice((*emits, *more, self.move, self.hint, self.publish, self.runs.emit))(client)

        steps = self.collect(make)
        self.steps.append(self.step(client, "ATOMIC", *steps))

    def pick(self, client: Client) -> int | None:
        """One of the client's handles, more often a recent one."""
        ids = [id_ for id_, handle in client.handles.items() if handle.home == self.staying] or list(client.handles)
        if not ids:
            return None
        return self.rng.choice(ids[-5:] if self.rng.random() < 0.6 else ids)

    def device(self) -> str:
        return self.staying or self.rng.choice(self.world.devices)

    def call(
        self,
        client: Client,
        op: str,
        inputs: tuple[Any, ...],
        attributes: dict[str, Any] | None = None,
        out: tuple[int, ...] | None = None,
        scalars: tuple[int, ...] = (),
    ) -> bool:
        """Add a call as Session.execute would; False if it would raise. `scalars`: the positions of numbers."""
        definition = find(op)
        rows = [None if i in scalars else client.handles.get(x) for i, x in enumerate(inputs)]
        metas = tuple(
            type(x) if i in scalars else row.meta if row else None
            for i, (x, row) in enumerate(zip(inputs, rows, strict=True))
        )
        targets = None if out is None else tuple(client.handles[id_].meta for id_ in out)
        if self.world.tight and (definition.dynamic or None in metas):
            return False  # no plan can contain sizes that depend on data: docs/decisions/0003, limits
        try:
            frozen = definition.freeze(attributes)
            outputs = check_targets(definition, infer_once(definition, metas, frozen), targets)
        except MetadataError:
            return False
        if any(meta is not None and meta.size > 64 for meta in outputs):
            return False
        homes = [client.handles[id_].home for id_ in out or ()] + [row.home for row in rows if row is not None]
        device = self.device() if self.rng.random() < 0.2 * self.moves or not homes else homes[0]
        if (device, op) in self.world.missing:
            return False
        ids = tuple(client.new() for _ in outputs) if out is None else out
        if (
            self.risky
            and not (self.honest or self.world.inline)
            and self.world.devices == SIMS
            and definition.view is None
            and self.rng.random() < 0.2
        ):
            self.failing.add((client.number + 1, self.count + 1))
        released = self.riding(client, inputs, ids, scalars, in_place=out is not None)
        self.add(client, "CALL", op, frozen, metas, device, targets, inputs, ids, released)
        if out is None:
            for id_, meta in zip(ids, outputs, strict=True):
                client.handles[id_] = Handle(meta, device)
        return True

    def riding(
        self,
        client: Client,
        inputs: tuple[Any, ...],
        outputs: tuple[int, ...],
        scalars: tuple[int, ...],
        *,
        in_place: bool,
    ) -> int:
        """Release some operands with the call."""
        released = 0
        ids = [*inputs, *(outputs if in_place else ())]
        for position, id_ in enumerate(ids):
            if position not in scalars and id_ in client.handles and self.rng.random() < 0.25:
                released |= 1 << position
                self.drop(client, id_)
        return released

    def drop(self, client: Client, id_: int) -> None:
        del client.handles[id_]
        client.gone.append(id_)

    # -- making and moving -----------------------------------------------------------------------------------------

    def upload(self, client: Client, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> None:
        shape = self.rng.choice(SHAPES) if shape is None else shape
        dtype = self.rng.choice(DTYPES) if dtype is None else dtype
        self.upload_to(client, shape, dtype, self.device())

    def upload_to(self, client: Client, shape: tuple[int, ...], dtype: str, device: str) -> int:
        size = int(np.prod(shape))
        values = [self.rng.randint(-3, 3) for _ in range(size)]
        array = np.array(values).reshape(shape).astype(dtype)
        id_ = client.new()
        self.add(client, "UPLOAD", id_, array, device)
        client.handles[id_] = Handle(Meta.of(array.shape, array.dtype), device)
        return id_

    def create(self, client: Client) -> bool:
        shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        if self.rng.random() < 0.5:
            return self.call(client, "full", (self.rng.randint(0, 1),), {"shape": shape, "dtype": dtype}, scalars=(0,))
        return self.call(client, "arange", (), {"start": 0, "stop": self.rng.randint(1, 6), "dtype": "int64"})

    def move(self, client: Client) -> None:
        id_ = self.pick(client)
        if id_ is None:
            return
        new, device = client.new(), self.rng.choice(self.world.devices)
        self.add(client, "TO_DEVICE", id_, new, device)
        client.handles[new] = Handle(client.handles[id_].meta, device)

    def hint(self, client: Client) -> None:
        """A placement hint. No pins if memory is only as large as serial execution needs without them."""
        id_ = self.pick(client)
        if id_ is None:
            return
        exact = self.world.tight and self.world.eviction == "never"
        what = self.rng.choice(("evict", "prefetch") if exact else HINTS)
        chance = self.rng.random() if what == "prefetch" else 1.0
        self.add(client, "HINT", id_, what, self.device() if chance < 0.7 else HOST if chance < 0.85 else "")

    def release(self, client: Client) -> None:
        ids = {self.rng.choice(list(client.handles)) for _ in range(self.rng.randint(1, 3)) if client.handles}
        if ids:
            self.add(client, "RELEASE", tuple(sorted(ids)))
            for id_ in ids:
                self.drop(client, id_)

    # -- ops -------------------------------------------------------------------------------------------------------

    def unary(self, client: Client) -> bool:
        x = self.pick(client)
        return x is not None and self.call(client, self.rng.choice(UNARY), (x,))

    def binary(self, client: Client) -> bool:
        x, y = self.pick(client), self.pick(client)
        op = self.rng.choice(BINARY)
        if x is None or y is None:
            return False
        if self.rng.random() < 0.3:
            return self.call(client, op, (x, self.rng.randint(1, 3)), scalars=(1,))
        return self.call(client, op, (x, y))

    def in_place(self, client: Client) -> bool:
        x, y, z = self.pick(client), self.pick(client), self.pick(client)
        op = self.rng.choice(("add", "subtract", "multiply", "maximum"))
        if x is None or y is None or z is None:
            return False
        kind = self.rng.random()
        if kind < 0.3:
            return self.call(client, op, (x, self.rng.randint(1, 3)), out=(x,), scalars=(1,))
        if kind < 0.6:
            return self.call(client, op, (x, y), out=(x,))
        if kind < 0.8:
            return self.call(client, op, (y, x), out=(x,))
        if kind < 0.9:
            return self.call(client, self.rng.choice(("negative", "square", "transpose", "flip")), (x,), out=(z,))
        return self.call(client, op, (x, y), out=(z,))

    def matmul(self, client: Client) -> bool:
        x, y = self.pick(client), self.pick(client)
        if x is None or y is None or not (self.exact(client, x) and self.exact(client, y)):
            return False
        return self.call(client, "matmul", (x, y), out=(x,) if self.rng.random() < 0.2 else None)

    def exact(self, client: Client, id_: int) -> bool:
        """Whether the sum of the elements is the same in any order."""
        meta = client.handles[id_].meta
        return meta is not None and meta.dtype.kind != "f"

    def reduction(self, client: Client) -> bool:
        x = self.pick(client)
        if x is None:
            return False
        op = self.rng.choice(("sum", "max", "min", "any", "all"))
        if op == "sum" and not self.exact(client, x):
            return False
        axis = self.rng.choice((None, 0, -1))
        return self.call(client, op, (x,), {"axis": axis})

    def view(self, client: Client) -> bool:
        x = self.pick(client)
        name, attributes = self.rng.choice(VIEWS)
        return x is not None and self.call(client, name, (x,), attributes)

    def setitem(self, client: Client) -> bool:
        x, y = self.pick(client), self.pick(client)
        if x is None or y is None:
            return False
        index: dict[str, Any] = {"index": self.rng.choice(INDICES)}
        meta = client.handles[x].meta
        if meta is not None and selects_all(index["index"], meta.shape):
            index |= {"shape": meta.shape, "dtype": meta.dtype.name}
            if self.rng.random() < 0.3:
                return self.call(client, "overwrite", (self.rng.randint(0, 1),), index, out=(x,), scalars=(0,))
            return self.call(client, "overwrite", (y,), index, out=(x,) if self.rng.random() < 0.9 else None)
        kind = self.rng.random()
        out = None if kind < 0.15 else (x,) if kind < 0.95 else (y,)
        if self.rng.random() < 0.5:
            return self.call(client, "setitem", (x, self.rng.randint(0, 1)), index, out=out, scalars=(1,))
        return self.call(client, "setitem", (x, y), index, out=out)

    def join(self, client: Client) -> bool:
        x, y = self.pick(client), self.pick(client)
        return x is not None and y is not None and self.call(client, self.rng.choice(("concat", "stack")), (x, y))

    def where(self, client: Client) -> bool:
        masks = [i for i, h in client.handles.items() if h.meta is not None and h.meta.dtype == np.bool_]
        x, y = self.pick(client), self.pick(client)
        if x is None or y is None or not masks:
            return False
        mask = self.rng.choice(masks)
        if self.rng.random() < 0.5:
            return self.call(client, "masked_select", (x, mask))
        return self.call(client, "where", (mask, x, y))

    def dynamic(self, client: Client) -> bool:
        x = self.pick(client)
        return x is not None and self.call(client, self.rng.choice(("unique_values", "nonzero")), (x,))

    # -- reading ---------------------------------------------------------------------------------------------------

    def fetch(self, client: Client) -> None:
        x = self.pick(client)
        if x is not None:
            self.learn(client, x, self.add(client, "FETCH", x))

    def wait(self, client: Client) -> None:
        ids = tuple({x for x in (self.pick(client), self.pick(client)) if x is not None})
        if ids:
            self.learn(client, ids[0], self.add(client, "WAIT", ids))

    def learn(self, client: Client, id_: int, step: Step) -> None:
        """Wait for the answer in some cases; then the client knows the meta, if there is one."""
        if self.rng.random() < 0.4 and not client.cancelled:
            self.add(client, "await", step.number)
            tensor = self.sessions[client.number].tensors.get(id_)
            if tensor is not None and tensor.value.array is not None and not tensor.value.errors:
                client.handles[id_].meta = tensor.meta

    def sync(self, client: Client) -> None:
        step = self.add(client, "SYNC")
        if self.rng.random() < 0.5:
            self.add(client, "await", step.number)

    def effect(self, client: Client) -> None:
        if not client.chains or self.rng.random() < 0.2:
            self.chain(client)
        self.side_effect(client)

    def chain(self, client: Client) -> None:
        chain = client.new()
        client.chains.append(chain)
        self.add(client, "CHAIN", chain, False)

    def own_chain(self, client: Client) -> int:
        """The chain that a session has from the beginning."""
        if not client.own_chain:
            client.own_chain = client.new()
            self.add(client, "CHAIN", client.own_chain, True)
        return client.own_chain

    def side_effect(self, client: Client) -> None:
        ids = tuple(x for x in (self.pick(client) for _ in range(self.rng.randint(0, 2))) if x is not None)
        self.add(client, "EFFECT", ids, self.rng.choice(client.chains), self.risky and self.rng.random() < 0.15)

    def host_call(self, client: Client) -> None:
        """Add a host call, which may fail, and may get values whose shape depends on data."""
        if not any(name.startswith("cpu") for name in self.world.devices):
            return
        ids = tuple(x for x in (self.pick(client) for _ in range(self.rng.randint(0, 2))) if x is not None)
        metas = tuple((self.rng.choice(SHAPES), self.rng.choice(DTYPES)) for _ in range(self.rng.randint(1, 2)))
        outputs, device = tuple(client.new() for _ in metas), self.device()
        way = self.rng.choice((FINE, RAISES, WRONG)) if self.risky and self.rng.random() < 0.4 else FINE
        self.add(client, "HOSTCALL", ids, outputs, metas, device, way)
        for id_, (shape, dtype) in zip(outputs, metas, strict=True):
            client.handles[id_] = Handle(Meta.of(shape, dtype), device)

    # -- names -----------------------------------------------------------------------------------------------------

    def publish(self, client: Client) -> None:
        x = self.pick(client)
        if x is not None and not (self.honest and client.handles[x].meta is None):
            name = self.rng.choice(NAMES)
            self.add(client, "PUBLISH", (name,), (x,), len(self.sinks) == 1)
            self.names[name] = Handle(client.handles[x].meta, client.handles[x].home)

    def lookup(self, client: Client) -> None:
        name = self.rng.choice([*self.names] if self.names and self.rng.random() < 0.8 else NAMES)
        found = self.names.get(name)
        if isinstance(found, Handle):
            id_ = client.new()
            self.add(client, "LOOKUP", (name,), (id_,), self.rng.random() < 0.4)
            client.handles[id_] = Handle(found.meta, found.home)
        elif found is not None:
            self.offers.obtain(client, name)
        elif self.risky and not self.honest:
            self.add(client, "LOOKUP", (name,), (client.new(),), self.rng.random() < 0.4)

    def offer(self, client: Client) -> None:
        taken = [*self.names] if self.rng.random() < 0.5 else []
        self.offers.offer(client, self.rng.choice(taken or NAMES))

    def list_names(self, client: Client) -> None:
        self.add(client, "NAMES")

    def checkpoint(self) -> None:
        """Add a checkpoint of the published values at this point, in most cases with a newly published one."""
        client = self.rng.choice([c for c in self.clients if not c.closed])
        if not self.names or self.rng.random() < 0.5:
            self.publish(client)
        self.add(client, "CHECKPOINT", self.rng.choice(DIRECTORIES))

    def unpublish(self, client: Client) -> None:
        if self.names:
            name = self.rng.choice(list(self.names))
            self.add(client, "UNPUBLISH", (name,))
            del self.names[name]

    # -- errors ----------------------------------------------------------------------------------------------------

    def boom(self, client: Client) -> bool:
        x, y = self.pick(client), self.pick(client)
        if x is None or y is None:
            return False
        return self.call(client, "model_boom", (x,), out=self.rng.choice((None, (x,), (y,))))

    def split(self, client: Client) -> bool:
        x = self.pick(client)
        return x is not None and self.call(client, "model_split", (x,))

    def unknown(self, client: Client) -> bool:
        """Use an id that was released, or was never defined."""
        wrong = self.rng.choice([*client.gone, 10_000])
        x = self.pick(client)
        if x is None:
            return False
        kind = self.rng.random()
        if kind < 0.5:
            return self.call(client, "add", (x, wrong), out=self.rng.choice((None, (x,))))
        if kind < 0.7:
            self.add(client, "FETCH", wrong)
        elif kind < 0.8:
            self.add(client, "WAIT", (x, wrong))
        elif kind < 0.9:
            new = client.new()
            self.add(client, "TO_DEVICE", wrong, new, self.device())
            client.handles[new] = Handle(None, self.device())
        elif kind < 0.94:
            self.add(client, "HINT", wrong, self.rng.choice(HINTS), "")
        elif client.gone:
            gone = self.rng.choice(client.gone)
            client.handles[gone] = client.handles[x]
            try:
                return self.call(client, "negative", (x,), out=(gone,))
            finally:
                client.handles.pop(gone, None)
        return True

    def cancel(self, client: Client) -> None:
        if client.cancelled:
            self.restart(client)
        else:
            self.add(client, "cancel")
            client.cancelled = True
            client.cancels += 1
            if not self.honest and self.rng.random() < 0.3:  # it was sent before the cancellation, which overtook it
                self.add(client, "RESTART", client.cancels - 1)

    def restart(self, client: Client) -> None:
        self.add(client, "RESTART", client.cancels)
        client.cancelled = False

    def close(self, client: Client) -> None:
        if sum(not c.closed for c in self.clients) > 1:
            self.add(client, "close")
            client.closed = True
            client.handles.clear()


def random_world(rng: random.Random, devices: Devices = SIMS) -> World:
    """Draw a machine."""
    tight = rng.choice((0.0, 0.0, 1.0, 0.8, 0.6))
    eviction = rng.choice(("never", "cost", "cost", "lru"))
    late = tuple(d for d in devices if rng.random() < 0.3) if rng.random() < 0.3 else ()
    return World(
        sessions=rng.choice((1, 2, 2, 3)),
        workers=rng.randint(1, 3),
        compute_streams=rng.randint(1, 2) if devices is not LAUNCHING else rng.choice((1, 1, 1, 2)),  # one, to launch
        peer=rng.random() < 0.5,
        inline=rng.random() < 0.5,
        events=rng.random() < 0.7,
        late=late,
        tight=tight if eviction == "never" or not tight else tight / 4,
        eviction=eviction,
        faults=random_faults(rng, devices) if rng.random() < 0.2 and devices is not GPUS else (),
        devices=devices,
        patience=rng.choice((1, 1, 1, 1000)),
        launches=rng.choice((devices[1:], devices[1:], devices[1:2])) if devices is LAUNCHING else (),
    )


def random_faults(rng: random.Random, devices: Devices) -> tuple[tuple[str, Any], ...]:
    """Faults of transfers and allocations. The order of execution decides which ones fail."""
    faults: list[tuple[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        device = rng.choice(devices)
        nth, count = rng.randint(1, 12), rng.randint(1, 2)
        what = rng.random()
        if what < 0.15 and device != "cpu:0":
            faults.append((device, {"kind": "lost", "nth": nth}))
        elif what < 0.5:
            faults.append((device, {"kind": "allocation", "nth": nth, "count": count}))
        else:
            kind = rng.choice(("h2d", "d2h", "p2p", "compute"))
            faults.append((device, {"kind": "fail", "stream": kind, "nth": nth, "count": count}))
    return tuple(faults)


def prepared(
    seed: int, *, honest: bool = False, devices: Devices = SIMS, crowded: bool = False, collects: bool = False
) -> tuple[Program, Expected]:
    """The program of a seed, and its expected results. On a CUDA device, no single calls are made to fail.

    `crowded`: memory is a fifth of what the program needs without evictions, but enough for its largest instruction, so
    that values are evicted. `collects`: with collectives.
    """
    generator = Generator(seed, honest=honest, devices=devices, crowded=crowded, collects=collects)
    program = generator.make(generator.rng.randint(*((40, 120) if honest else (10, 30) if crowded else (20, 60))))
    return program, generator.expected


def random_program(seed: int, *, honest: bool = False, devices: Devices = SIMS) -> Program:
    """The program of a seed."""
    return prepared(seed, honest=honest, devices=devices)[0]
