"""A program is a list of steps. Each step becomes messages when it is run, the same ones every time.

A step keeps its number when the program is shrunk. The number is the location and the request number of the step's
messages, so that the answers of two machines can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.constructs import blocks_of
from tensord.interpreter.programs.records import wire_records
from tensord.interpreter.wire.file_messages import Checkpoint
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
    Release,
    Restart,
    Signature,
    Sync,
    ToDevice,
    Unpublish,
    Upload,
    Wait,
    encode_message,
)
from tensord.interpreter.wire.metas import encode_meta
from tensord.interpreter.wire.node_messages import Collective
from tensord.interpreter.wire.program_messages import Link, ProgramPart, Run

from .host_calls import function_of


@dataclass(frozen=True)
class Step:
    """One step. `kind` is that of a message, or "cancel", "close", "await", "FORGET". `fields` depend on the kind:

    - a group ("ATOMIC"): its steps;
    - a run ("RUN"): a `Routine`, two ids for it if it is not linked yet, the steps that it stands for, inputs, numbers,
      (id inside, id of the result) of each result, and the ids that are released after it;
    - a run with control flow ("FLOW"): a `Routine`, its two ids, inputs, numbers, outputs, and (chain, number, whether
      it raises) of each side effect;
    - publishing a routine ("OFFER"): the name, a `Routine`, its two ids, and inputs and numbers for a run;
    - looking up a routine ("OBTAIN"): the name, a `Routine`, and whether its captured tensors are snapshots.

    `line`: the step of the routine's first run that the location names, if it is not this step.
    """

    number: int
    session: int
    kind: str
    fields: tuple[Any, ...]
    line: int = 0

    @property
    def location(self) -> int:
        return self.line or self.number

    @property
    def inner(self) -> tuple[Step, ...]:
        """The steps of a group or run."""
        return self.fields if self.kind == "ATOMIC" else self.fields[INNER] if self.kind == "RUN" else ()

    def __str__(self) -> str:
        return f"#{self.number} session {self.session}: {self.kind} {self.fields}"


ROUTINE, FRESH, INNER, INPUTS, NUMBERS, RENAMED, RELEASED = range(7)  # the fields of a RUN
LINKED, CAPTURED, ISSUED = WAYS = ("linked", "captured", "issued")  # ways in which a client runs a routine
NAMING = frozenset({"PUBLISH", "LOOKUP", "UNPUBLISH", "OFFER", "OBTAIN"})  # steps about names
SEED, RANDOM = 7, "integers"  # of the programs' random numbers, and the op that draws them
FLOW_INPUTS, FLOW_EFFECTS = 2, 5  # of a FLOW


@dataclass(frozen=True)
class Routine:
    """A program linked to devices and captured tensors.

    `keeps`: whether the session keeps the program, too. `way`: how a client with the public surface runs it.
    `obtained`: whether it was looked up, so that its captured tensors are its own. `passes`: the passes that may change
    it.
    """

    key: int
    program: programs.Program
    devices: tuple[str, ...]
    captured: tuple[int, ...]
    keeps: bool
    way: str = LINKED
    obtained: bool = False
    passes: tuple[str, ...] = ("all",)


@dataclass(frozen=True)
class World:
    """The machine that a program runs on, and the properties of its streams.

    `patience`: the number of runs of a routine that are unfolded before one may run as a whole. `store`: the host's
    memory is tight, too, and there is a store below it; half of the uploads lie in files that are loaded. `ceilings`:
    the limits apply to each session, not to the device. `launches`: the sim devices that launch.
    """

    sessions: int = 1
    workers: int = 1
    compute_streams: int = 1
    peer: bool = True
    inline: bool = True
    events: bool = True
    late: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    faults: tuple[tuple[str, Any], ...] = ()
    tight: float = 0.0  # memory, as a share of what serial execution without evictions needs; 0 for no limit
    eviction: str = "never"
    devices: tuple[str, ...] = ("cpu:0", "sim:0", "sim:1")
    patience: int = 1
    store: bool = False
    ceilings: bool = False
    launches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps, the world they run in, and the calls that fail."""

    seed: int
    world: World
    steps: tuple[Step, ...]
    failing: frozenset[tuple[int, int]] = frozenset()


def shares(program: Program) -> bool:
    """Whether sessions share tensors or routines."""
    return any(step.kind in NAMING for outer in program.steps for step in (outer, *outer.inner))


def runs(program: Program) -> bool:
    """Whether the program has runs. Messages behind a run may be admitted after later messages of other sessions."""
    return any(step.kind in {"RUN", "FLOW"} for outer in program.steps for step in (outer, *outer.inner))


@dataclass
class Encoder:
    """Makes one run's messages. `effects` gets (session, chain, number, arrays) of every side effect that happens."""

    effects: list[tuple[int, int, int, tuple[Any, ...]]] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)
    routines: dict[tuple[int, int], int] = field(default_factory=dict)  # (session, key) -> id of the linked routine

    def messages(self, step: Step) -> list[list[Any]]:
        """The messages of one step as arrays; the last one is the step's own."""
        before = [encode_message(told(step.location))]
        if step.kind == "ATOMIC":
            return [*before, encode_message(Atomic([one for inner in step.fields for one in self.messages(inner)]))]
        if step.kind in {"CALL", "RUN", "FLOW", "FORGET", "OFFER"}:
            return before + list(map(encode_message, getattr(self, step.kind.lower())(step)))
        make: Callable[[Step], NamedMessage] = getattr(self, step.kind.lower())
        return [*before, encode_message(make(step))]

    def call(self, step: Step) -> list[NamedMessage]:
        op, attributes, metas, device, targets, inputs, outputs, released = step.fields
        key = (step.session, op, attributes, metas, device, targets)
        made: list[NamedMessage] = []
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers) + 1
            wanted = None if targets is None else tuple(map(encode_meta, targets))
            encoded = tuple(map(encode_meta, metas))
            made.append(Signature(self.numbers[key], op, attributes, encoded, device, wanted))
        made.append(Call(self.numbers[key], inputs, outputs, released, step.location))
        return made

    def run(self, step: Step) -> list[NamedMessage]:
        """A run, after the messages of its program and link if it is the first run of its routine."""
        routine, fresh, inner, inputs, numbers, renamed, released = step.fields
        made: list[NamedMessage] = [told(one.location) for one in inner]
        made += self.linked(step, routine, fresh)
        effects = [self.effect(one) for one in inner if one.kind == "EFFECT"]
        outputs = tuple(output for _, output in renamed)
        called = tuple((one.chain, one.callback, one.request) for one in effects)
        made.append(Run(self.routines[step.session, routine.key], inputs, numbers, outputs, called, step.number))
        return [*made, Release(released)] if released else made

    def flow(self, step: Step) -> list[NamedMessage]:
        """A run with control flow, after the messages of its program and link if it is the first of its routine."""
        routine, fresh, inputs, numbers, outputs, effects = step.fields
        made = self.linked(step, routine, fresh)
        called = tuple(
            (chain, self.noting(step.session, chain, number, raises), number) for chain, number, raises in effects
        )
        id_ = self.routines[step.session, routine.key]
        return [*made, Run(id_, inputs, numbers, outputs, called, step.number)]

    def linked(self, step: Step, routine: Routine, fresh: tuple[int, int]) -> list[NamedMessage]:
        """The lines of a routine; and its program and the link, unless the session has linked it."""
        made: list[NamedMessage] = list(map(told, lines_of(routine.program)))
        key = (step.session, routine.key)
        if key not in self.routines:
            self.routines[key] = fresh[1]
            made += linking(routine, fresh, step.number)
        return made

    def offer(self, step: Step) -> list[NamedMessage]:
        """Publish a routine, after the messages that make it."""
        name, routine, fresh, _, _ = step.fields
        made = self.linked(step, routine, fresh)
        return [*made, Publish((name,), (self.routines[step.session, routine.key],), step.number)]

    def obtain(self, step: Step) -> Lookup:
        name, routine, snapshot = step.fields
        return Lookup((name,), routine.captured, step.number, snapshot)

    def forget(self, step: Step) -> list[NamedMessage]:
        """The release of a routine, if it is linked, and of its own captured tensors."""
        key, captured = step.fields
        id_ = self.routines.pop((step.session, key), None)
        return [Release((*captured, *(() if id_ is None else (id_,))))]

    def upload(self, step: Step) -> Upload:
        id_, array, device = step.fields
        payload = np.array(array, order="C")
        return Upload(id_, payload.shape, payload.dtype.name, device, payload, step.location)

    def fetch(self, step: Step) -> Fetch:
        return Fetch(step.fields[0], step.number, step.number, export=0)

    def wait(self, step: Step) -> Wait:
        return Wait(step.fields[0], step.number, step.number)

    def sync(self, step: Step) -> Sync:
        return Sync(step.number, step.number)

    def release(self, step: Step) -> Release:
        return Release(step.fields[0])

    def chain(self, step: Step) -> Chain:
        return Chain(step.fields[0])

    def effect(self, step: Step) -> Effect:
        ids, chain, raises = step.fields
        return Effect(ids, chain, self.noting(step.session, chain, step.number, raises), step.number, step.location)

    def hostcall(self, step: Step) -> Effect:
        ids, outputs, metas, device, way = step.fields
        function = function_of(metas, way)
        return Effect(ids, 0, function, 0, step.location, outputs=outputs, metas=metas, device=device)

    def noting(self, session: int, chain: int, number: int, raises: bool) -> Callable[..., None]:
        """A callback that notes its arguments; for an error it notes only that there was one."""

        def callback(*arrays: Any) -> None:
            found = tuple("an error" if isinstance(array, TensordError) else array.copy() for array in arrays)
            self.effects.append((session, chain, number, found))
            if raises:
                raise ValueError("the callback failed")

        return callback

    def publish(self, step: Step) -> Publish:
        given, ids, asks = step.fields
        return Publish(given, ids, step.number if asks else 0)

    def lookup(self, step: Step) -> Lookup:
        names, ids, snapshot = step.fields
        return Lookup(names, ids, step.number, snapshot)

    def names(self, step: Step) -> ListNames:
        return ListNames(step.number)

    def restart(self, step: Step) -> Restart:
        return Restart(step.fields[0])

    def unpublish(self, step: Step) -> Unpublish:
        return Unpublish(step.fields[0], step.number)

    def to_device(self, step: Step) -> ToDevice:
        id_, output, device = step.fields
        return ToDevice(id_, output, device, step.location)

    def collective(self, step: Step) -> Collective:
        kind, ids, outputs, devices, attributes = step.fields
        return Collective(kind, ids, outputs, devices, attributes, step.location)

    def checkpoint(self, step: Step) -> Checkpoint:
        return Checkpoint(step.fields[0], (), 0, step.number, step.location)

    def hint(self, step: Step) -> Hint:
        id_, what, device = step.fields
        return Hint(id_, what, device, step.location)


def told(line: int) -> Location:
    """The message with the text of a line."""
    return Location(line, f"step {line}")


def lines_of(program: programs.Program) -> list[int]:
    """The lines of a program's steps, including those of blocks."""
    inner = [line for block in blocks_of(program) for line in lines_of(block)]
    return [step.location for step in program.steps] + inner


def linking(routine: Routine, fresh: tuple[int, int], location: int) -> list[NamedMessage]:
    """The messages of a program, in parts, and of its link. `fresh`: the ids of both."""
    (program, id_), records, size = fresh, list(wire_records(routine.program)), 1 + routine.key % 7
    made: list[NamedMessage] = [
        ProgramPart(program, tuple(records[start : start + size])) for start in range(0, len(records), size)
    ]
    made.append(Link(id_, program, routine.devices, routine.captured, location, "", routine.passes))
    return made if routine.keeps else [*made, Release((program,))]


def blocks_inside(program: programs.Program) -> Iterator[programs.Program]:
    """The blocks of a program's steps, and the blocks inside these."""
    for block in blocks_of(program):
        yield block
        yield from blocks_inside(block)
