"""A program: steps in order, the values between them, and the variables behind the values.

A *value* is the result of a step; values are numbered in the order of the text: parameters, captured tensors, then the
results of each step. Operands of steps are values or numbers: an operand n >= 0 is value n, and an operand n < 0 is the
number in slot ~n (`numbers`).

A *variable* corresponds to a handle: a write in place (`into`) makes a new value of the same variable, and the old
value can no longer be read. Views are values of their own: a write never changes them. So a program reads like an SSA
form, and still says what the caller's tensors are after it: the newest values of their variables.

*Device slots* (d0, d1, ...) stand for devices; a link assigns a device to each. Every value has its home in one.

A *construct* is a step of control flow. Its *blocks* are programs of their own, which share only the device slots, the
chains and the callbacks with the surrounding one; `constructs` says what their operands are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Final, NamedTuple

import msgpack

from ..collectives.collective import CollectiveKind
from ..schema.opdef import FrozenAttributes
from ..types.meta import SCALAR_TYPES, Meta, Scalar, ScalarType
from .numbers import CONSTANT, DRAW, PARAMETER, Number

# Steps that are no ops.
MOVE: Final = "to_device"
PRINT: Final = "print"
EFFECT: Final = "effect"
HOST_CALL: Final = "host_call"
COND: Final = "cond"
CASE: Final = "case"
WHILE: Final = "while_loop"
REPEAT: Final = "repeat_loop"
CONSTRUCTS: Final = frozenset((COND, CASE, WHILE, REPEAT))
# Collectives on values with different homes, where their results are, too. A broadcast consists of moves.
COLLECTIVES: Final = frozenset(map(str, CollectiveKind)) - {str(CollectiveKind.BROADCAST)}
CLIENT_STEPS: Final = frozenset((PRINT, EFFECT, HOST_CALL))  # work of the client, which a run reports to it
NON_OP_STEPS: Final = CONSTRUCTS | COLLECTIVES | CLIENT_STEPS | {MOVE}

NO_DEVICE: Final = -1  # of steps whose results have several homes, or none
CHARACTERS_PER_STEP: Final = 256  # of texts of prints, and of names, that count as a step
SURROGATE: Final = re.compile("[\ud800-\udfff]")  # half a pair, which UTF-8 cannot encode
RECORDS_PER_STEP: Final = 16  # numbers, parameters and captured tensors that count as a step


class Source(NamedTuple):
    """An outside tensor: a parameter, or a captured tensor."""

    meta: Meta
    device: int
    name: str


class Step(NamedTuple):
    """One step: an op, or a move, a collective, a print, an effect, a host call, a construct.

    `operands`: values and numbers, as the module says. `device`: the slot of the device it runs on. `into`: the values
    that it overwrites with its last results; None for new variables only. An op overwrites with all of its results.
    `first`: its first result's number; `results`: the metas, None for one that depends on data. `location`: the line
    that issued it: a text, or a number of a session's, as the builder of the program decides; not part of the digest.
    `blocks`: those of a construct.
    """

    op: str
    operands: tuple[int, ...]
    attributes: FrozenAttributes
    device: int
    into: tuple[int, ...] | None
    first: int
    results: tuple[Meta | None, ...]
    location: Any
    blocks: tuple[Program, ...] = ()

    @property
    def targets(self) -> tuple[int | None, ...]:
        """For each result the value that it overwrites, or None."""
        into = self.into or ()
        return (*[None] * (len(self.results) - len(into)), *into)


@dataclass(eq=False, repr=False, kw_only=True)
class Program:
    """A checked program, made by `Builder`. Never changed; compared by `digest`. `str` is its text; `parse` reads one.

    `parameters` and `captured` have the values 0, 1, ...; `results` are the values that a run returns as new tensors:
    each made by a step, and the newest of its variable. `metas` and `homes` (device slots) are by value, and so is
    `variables`: the number of the first value of its variable. `devices` counts the slots, `chains` the chains of side
    effects, `callbacks` the functions of effects and host calls, `depth` the levels of blocks; blocks are included in
    all these.
    """

    # Set by the package, which imports both: the modules of texts import this one.
    _reads: ClassVar[Callable[[str], Program]]
    _writes: ClassVar[Callable[[Program], str]]

    numbers: tuple[Number, ...]
    parameters: tuple[Source, ...]
    captured: tuple[Source, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    metas: tuple[Meta | None, ...]
    homes: tuple[int, ...]
    variables: tuple[int, ...]

    def __post_init__(self) -> None:
        blocks = [block for step in self.steps for block in step.blocks]
        slots = (*self.homes, *(step.device for step in self.steps), *(block.devices - 1 for block in blocks))
        self.devices: int = 1 + max(slots, default=-1)
        effects = [step for step, _ in effects_of(self)]
        self.chains = 1 + max((dict(step.attributes).get("chain", -1) for step in effects), default=-1)
        self.callbacks = 1 + max((dict(step.attributes).get("callback", -1) for step in effects), default=-1)
        self.depth: int = 1 + max((block.depth for block in blocks), default=0)

    @cached_property
    def digest(self) -> str:
        """128 bits, in hexadecimal, of everything except the locations."""
        digest = hashlib.blake2b(digest_size=16)
        pack = msgpack.Packer(default=plain_complex).pack
        for record in records_of(self):
            digest.update(pack(record))
        return digest.hexdigest()

    @property
    def inputs(self) -> int:
        """The number of values from outside."""
        return len(self.parameters) + len(self.captured)

    @cached_property
    def number_types(self) -> tuple[ScalarType, ...]:
        """The types of all numbers."""
        return tuple(SCALAR_TYPES[number.kind] for number in self.numbers)

    @cached_property
    def counts(self) -> tuple[int, int, int, int]:
        """The numbers of inputs, numbers, outputs and effects of a run."""
        return len(self.parameters), len(self.numbers), len(self.results), self.effects[-1]

    @cached_property
    def returned(self) -> tuple[int, ...]:
        """The variables of the results."""
        return tuple(self.variables[value] for value in self.results)

    @cached_property
    def number_parameters(self) -> tuple[Number, ...]:
        """The numbers that a run is given, in order."""
        return tuple(number for number in self.numbers if number.op == PARAMETER)

    @cached_property
    def draws(self) -> int:
        """The number of calls of the session's random numbers in a run."""
        return sum(number.op == DRAW for number in self.numbers)

    @cached_property
    def written(self) -> tuple[int, ...]:
        """The values from outside whose variables a run writes."""
        into = {self.variables[value] for step in self.steps for value in step.into or ()}
        return tuple(value for value in range(self.inputs) if value in into)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """For each value 0 if its variable is from outside, else the position of the variable among inner ones, from
        1."""
        ranks: list[int] = []
        newest = 0
        for value, variable in enumerate(self.variables):
            if variable == value >= self.inputs:
                newest += 1
                ranks.append(newest)
            else:
                ranks.append(0 if variable < self.inputs else ranks[variable])
        return tuple(ranks)

    @cached_property
    def inner(self) -> int:
        """The number of variables that the steps make."""
        return max(self.ranks, default=0)

    @cached_property
    def effects(self) -> tuple[int, ...]:
        """The number of the client's steps before each step, including those in blocks; finally the total."""
        counts = (step.op in CLIENT_STEPS or sum(block.effects[-1] for block in step.blocks) for step in self.steps)
        return tuple(accumulate(counts, initial=0))

    @cached_property
    def is_data_dependent(self) -> bool:
        """Return whether computed values decide which steps run, as in control flow."""
        return any(step.blocks for step in self.steps)

    @cached_property
    def last_use(self) -> tuple[int, ...]:
        """For each value the last step that reads or overwrites it: -1 for none, `len(steps)` for a result."""
        last = [-1] * len(self.variables)
        for position, step in enumerate(self.steps):
            for value in (*step.operands, *(step.into or ())):
                if value >= 0:
                    last[value] = position
        for value in self.results:
            last[value] = len(self.steps)
        return tuple(last)

    @cached_property
    def weight(self) -> int:
        """Its weight in a session's quota of steps."""
        return weight_of(*sizes_of(self))

    @cached_property
    def constants(self) -> dict[int, Scalar]:
        """The constant numbers, by slot."""
        return {
            slot: number.value
            for slot, number in enumerate(self.numbers)
            if number.op == CONSTANT and number.value is not None
        }

    @cached_property
    def last_uses(self) -> tuple[tuple[int, ...], ...]:
        """For each step the variables that no later step uses and no run returns: they die with the step."""
        alive = {self.variables[value] for value in self.results}
        alive.update(self.variables[value] for value in range(self.inputs))
        dying: list[tuple[int, ...]] = []
        for step in reversed(self.steps):
            made = range(step.first, step.first + len(step.results))
            used = dict.fromkeys(self.variables[value] for value in (*step.operands, *made) if value >= 0)
            dying.append(tuple(variable for variable in used if variable not in alive))
            alive.update(used)
        return tuple(reversed(dying))

    @classmethod
    def parse(cls, text: str) -> Program:
        """Read the program in a text, as `str` writes it.

        :param text: The text.
        :returns: The program, with the same digest.
        :raises ProtocolError: The text is no program; the message names the line.
        :raises MetadataError: An op does not accept its operands; the message names the line.
        :raises QuotaError: The program is too large; the message names the line.
        """
        return cls._reads(text)

    def __str__(self) -> str:
        return Program._writes(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<tensord.Program {self.digest[:12]}: {len(self.steps)} steps>"


# -- records: one for each line of a program's text --------------------------------------------------------------------


def records_of(program: Program, locate: Callable[[Any], Any] | None = None) -> Iterator[tuple[Any, ...]]:
    """All records of a program. Those of its steps end with their locations, translated by `locate`, if it is given.

    The blocks of a construct come before it, each after a record of its own.
    """
    yield from (("number", *number) for number in program.numbers)
    for what, sources in (("parameter", program.parameters), ("captured", program.captured)):
        yield from ((what, source.meta.plain, source.device, source.name) for source in sources)
    for step in program.steps:
        for block in step.blocks:
            yield ("block",)
            yield from records_of(block, locate)
        record = (step.op, step.operands, step.attributes, step.device, step.into)  # the results' metas follow from it
        yield record if locate is None else (*record, locate(step.location))
    yield ("return", program.results)


def effects_of(program: Program, depth: int = 0) -> Iterator[tuple[Step, int]]:
    """The steps that print, or call a function of the client's, with those of blocks at the position of their
    construct; and the depth of each in blocks."""
    for step in program.steps:
        if step.op in CLIENT_STEPS:
            yield step, depth
        for block in step.blocks:
            yield from effects_of(block, depth + 1)


def sizes_of(program: Program) -> tuple[int, int, int]:
    """Steps, other records, characters of prints and names, those of blocks included. A block counts as a step."""
    texts = (dict(step.attributes)["parts"] for step in program.steps if step.op == PRINT)
    characters = sum(len(part or "") for parts in texts for part in parts)
    characters += sum(len(source.name) for source in (*program.parameters, *program.captured))
    characters += sum(len(number.name) for number in program.numbers)
    inside = [sizes_of(block) for step in program.steps for block in step.blocks]
    own = (len(program.steps) + len(inside), len(program.numbers) + program.inputs, characters)
    return tuple(map(sum, zip(own, *inside, strict=True)))  # type: ignore[return-value]


def weight_of(steps: int, others: int, characters: int) -> int:
    """The weight of a program in a quota of steps: its steps, long texts in them, and its other records, which are much
    smaller."""
    return steps + others // RECORDS_PER_STEP + characters // CHARACTERS_PER_STEP


def plain_complex(value: Any) -> Any:
    """The msgpack form of a complex number, for the digest."""
    if type(value) is complex:
        return ["complex", value.real, value.imag]
    raise TypeError(f"{type(value).__name__} is not part of a program")
