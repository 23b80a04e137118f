"""Makes a program step by step. Each step is checked as a call is: op, attributes, metas, scopes, sizes.

It is the only way to make a program: a capture, the parser of texts and the records of a client all use it. So a
`Program` is always valid, and nothing is checked again when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import ops as _ops  # noqa: F401 - fills the registry
from ..collectives.request import request_of
from ..errors import MetadataError, MetadataTypeError, ProtocolError, QuotaError
from ..schema.infer import InferCache, check_targets
from ..schema.opdef import Attributes, find
from ..schema.promotion import WIRE_INTEGERS, check_scalar
from ..types.meta import SCALAR_TYPES, Meta, OperandMeta, Scalar
from ..wire.forms import shown
from ..wire.metas import decode_meta
from .constructs import (
    FORMS,
    MAX_BLOCK_DEPTH,
    check_attributes,
    check_blocks,
    check_head,
    layout_of,
    results_of,
    written_values,
)
from .numbers import ARITHMETIC, BLOCK_LEAVES, CONSTANT, DRAW, LEAVES, SEED, Number, kinds_of
from .program import (
    COLLECTIVES,
    CONSTRUCTS,
    EFFECT,
    HOST_CALL,
    MOVE,
    NO_DEVICE,
    PRINT,
    SURROGATE,
    Program,
    Source,
    Step,
    weight_of,
)

MAX_STEPS = 1 << 14  # of a program
MAX_OPERANDS = 1 << 18  # of all its steps
MAX_SLOTS = 64  # of devices, chains, callbacks
MAX_NAME_LENGTH = 256  # characters of a name
MAX_PARTS = 1 << 12  # of a print, and values of an effect
MAX_TEXT_LENGTH = 1 << 16  # characters of a print's texts


class ProgramSize:
    """The size of a program so far, with all of its blocks; each of them counts as a step.

    `limit`: of steps, numbers, and outside tensors.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.steps = 0
        self.operands = 0
        self.numbers = 0
        self.sources = 0
        self.characters = 0  # of the texts of prints, and of names

    def weight(self) -> int:
        """Its weight in a session's quota of steps."""
        return weight_of(self.steps, self.numbers + self.sources, self.characters)


class Builder:
    """Makes one program. Parameters come first; numbers and captured tensors at any time, since a capture finds them as
    it proceeds: `finish` renumbers the values, so that captured tensors come before the results of steps.

    `block` begins a block, with a builder of its own; `construct` takes programs that such builders have made.

    Every method raises MetadataError for invalid operands of an op, ProtocolError for anything that no program may
    contain, and QuotaError beyond a limit.
    """

    def __init__(self, infer: InferCache | None = None, limit: int = MAX_STEPS, around: Builder | None = None) -> None:
        self.numbers: list[Number] = []
        self.steps: list[Step] = []
        self.parameters: list[Source] = []
        self.captures: list[Source] = []
        self.metas: list[Meta | None] = []
        self.homes: list[int] = []
        self.variables: list[int] = []
        self.newest: dict[int, int] = {}  # variable -> its newest value
        self.size: ProgramSize = ProgramSize(limit) if around is None else around.size
        self.depth: int = 1 if around is None else around.depth + 1
        self._infer = InferCache() if infer is None else infer
        self._outside: list[int] = []  # the values of captured tensors

    def weight(self) -> int:
        """Its weight in a session's quota of steps."""
        return self.size.weight()

    def block(self) -> Builder:
        """The builder of a block for a later `construct`. QuotaError if it is nested too deeply, or there are too many
        blocks."""
        if self.depth > MAX_BLOCK_DEPTH:
            raise QuotaError(f"blocks are nested at most {MAX_BLOCK_DEPTH} levels deep")
        if self.size.steps >= self.size.limit:
            raise QuotaError(f"a program has at most {self.size.limit} steps and blocks")
        self.size.steps += 1
        return Builder(self._infer, around=self)

    # -- parameters, captured tensors, numbers
    # --------------------------------------------------------------------------

    def number(
        self, kind: str, op: str, operands: Sequence[int] = (), value: Scalar | None = None, name: str = ""
    ) -> int:
        """Add a number; returns its slot."""
        if type(kind) is not str or kind not in SCALAR_TYPES:
            raise ProtocolError(f"{shown(kind)} is not a type of a number")
        if type(op) is not str or (op not in LEAVES and op not in ARITHMETIC):
            raise ProtocolError(f"unknown arithmetic {shown(op)} among numbers")
        if self.depth > 1 and op not in BLOCK_LEAVES:
            raise ProtocolError(f"the numbers of a block are parameters, constants and draws: there is no {op}")
        if self.size.numbers >= self.size.limit:
            raise QuotaError(f"a program has at most {self.size.limit} numbers")
        check_name(name)
        check_value(kind, op, value)
        if op in LEAVES:
            check_leaf(kind, op, operands)
        else:
            self._check_arithmetic(kind, op, operands)
        self.size.numbers += 1
        self.size.characters += len(name)
        self.numbers.append(Number(kind, op, tuple(operands), value, name))
        return len(self.numbers) - 1

    def _check_arithmetic(self, kind: str, op: str, operands: Sequence[int]) -> None:
        arity = ARITHMETIC[op][0]
        if len(operands) != arity or not all(type(n) is int and 0 <= n < len(self.numbers) for n in operands):
            raise ProtocolError(f"{op} takes {arity} earlier number{'s' * (arity > 1)}")
        taken = tuple([self.numbers[slot].kind for slot in operands])
        kinds = kinds_of(op, taken)
        if not kinds:
            raise MetadataTypeError(f"Python has no {op} of {' and '.join(taken)}", op=op)
        if kind not in kinds:
            raise MetadataTypeError(f"{op} of {' and '.join(taken)} is {' or '.join(kinds)}, not {kind}", op=op)

    def parameter(self, meta: Meta, device: int = 0, name: str = "") -> int:
        """Add a parameter that is a tensor; returns its value."""
        if self.captures or self.steps:
            raise ProtocolError("parameters come before captured tensors and steps")
        return self._source(self.parameters, meta, device, name)

    def captured(self, meta: Meta, device: int = 0, name: str = "") -> int:
        """Add a captured tensor; returns its value."""
        self._outside.append(value := self._source(self.captures, meta, device, name))
        return value

    def _source(self, sources: list[Source], meta: Meta, device: int, name: str) -> int:
        check_slot(device, "device")
        check_name(name)
        if self.size.sources >= self.size.limit:
            raise QuotaError(f"a program has at most {self.size.limit} tensors from outside")
        self.size.sources += 1
        self.size.characters += len(name)
        sources.append(Source(meta, device, name))
        return self._new_value(meta, device)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[int],
        attributes: Attributes | None = None,
        device: int = 0,
        into: Sequence[int] | None = None,
        location: Any = None,
    ) -> range:
        """Add an op; returns the values of its results. With `into` it overwrites those values' variables."""
        op = find(name)
        check_slot(device, "device")
        frozen = op.freeze(attributes)
        metas = tuple([self._operand_meta(operand) for operand in operands])
        for operand, meta in zip(operands, metas, strict=True):
            if meta is int and self.numbers[~operand].op == CONSTANT:
                check_scalar(op.name, self.numbers[~operand].value, metas, dict(frozen))
        outputs = self._infer.infer(op, metas, frozen)
        if into is not None:
            outputs = check_targets(op, outputs, self._targets(op.name, into))
        targets = None if into is None else tuple(into)
        return self._add(Step(name, tuple(operands), frozen, device, targets, len(self.metas), outputs, location))

    def move(self, value: int, device: int, location: Any = None) -> int:
        """Add a move: the same value with another home, or a copy with the same one; returns its value."""
        meta = self._tensor_meta(value)
        check_slot(device, "device")
        return self._add(Step(MOVE, (value,), (), device, None, len(self.metas), (meta,), location))[0]

    def collective(
        self, kind: str, values: Sequence[int], attributes: Attributes | None = None, location: Any = None
    ) -> range:
        """Add a collective on values of different homes; returns the values of its results, one on each home."""
        if kind not in COLLECTIVES:
            raise ProtocolError(f"unknown collective {shown(kind)} in a program")
        metas = [self._tensor_meta(value) for value in values]
        homes = [self.homes[value] for value in values]
        if len(set(homes)) < len(homes):
            raise MetadataError(f"{kind}: each value must be on a device of its own", op=kind)
        if None in metas:
            raise MetadataError(f"{kind} takes no value whose shape data decide", op=kind)
        request = request_of(dict(attributes or {}))
        outputs = request.collective(kind, [meta for meta in metas if meta is not None], len(metas)).outputs()
        frozen = tuple(sorted(request._asdict().items()))
        step = Step(kind, tuple(values), frozen, NO_DEVICE, None, len(self.metas), outputs, location)
        return self._add(step, homes)

    def print(
        self,
        parts: Sequence[str | None],
        values: Sequence[int],
        sep: str = " ",
        chain: int = 0,
        location: Any = None,
    ) -> None:
        """Add a print of texts and values: None in `parts` stands for the next value."""
        texts = [part for part in (*parts, sep) if part is not None]
        if sep is None or not all(type(text) is str for text in texts):
            raise ProtocolError("a print has texts, and None for each value")
        if len(parts) > MAX_PARTS or sum(map(len, texts)) > MAX_TEXT_LENGTH:
            raise QuotaError(f"a print in a program has at most {MAX_PARTS} parts, and {MAX_TEXT_LENGTH} characters")
        if any(map(SURROGATE.search, texts)):
            raise MetadataError("print: a text holds half a surrogate pair, which UTF-8 does not have", op=PRINT)
        if sum(part is None for part in parts) != len(values):
            raise ProtocolError(f"a print of {len(values)} values has None in as many parts")
        check_slot(chain, "chain")
        attributes = (("chain", chain), ("parts", tuple(parts)), ("sep", sep))
        self._effect(PRINT, values, attributes, location)
        self.size.characters += sum(len(part or "") for part in parts)

    def effect(self, callback: int, values: Sequence[int], chain: int = 0, location: Any = None) -> None:
        """Add a side effect: the client calls its function number `callback` with the values."""
        check_slot(chain, "chain")
        check_slot(callback, "callback")
        if len(values) > MAX_PARTS:
            raise QuotaError(f"an effect in a program takes at most {MAX_PARTS} values")
        self._effect(EFFECT, values, (("callback", callback), ("chain", chain)), location)

    def host_call(
        self, callback: int, values: Sequence[int], metas: Sequence[Any], device: int = 0, location: Any = None
    ) -> range:
        """Add a host call: the client's function number `callback` makes results of these metas; returns their
        values."""
        check_slot(callback, "callback")
        check_slot(device, "device")
        if len(values) > MAX_PARTS or not 0 < len(metas) <= MAX_PARTS:
            raise QuotaError(f"a host call in a program takes at most {MAX_PARTS} values, and makes at most so many")
        for value in values:
            self._tensor_meta(value)
        results = tuple([result_meta(meta) for meta in metas])
        attributes = (("callback", callback), ("metas", tuple([meta.plain for meta in results])))
        return self._add(Step(HOST_CALL, tuple(values), attributes, device, None, len(self.metas), results, location))

    def _effect(self, name: str, values: Sequence[int], attributes: Any, location: Any) -> None:
        for value in values:
            self._tensor_meta(value)
        self._add(Step(name, tuple(values), attributes, NO_DEVICE, None, len(self.metas), (), location))

    def construct(
        self,
        op: str,
        operands: Sequence[int],
        blocks: Sequence[Program],
        attributes: Attributes | None = None,
        location: Any = None,
    ) -> range:
        """Add a step of control flow, as `constructs` says; returns the values of its results, overwritten ones last.

        `blocks`: made by builders from `block`.
        """
        if op not in FORMS:
            raise ProtocolError(f"unknown step {shown(op)} with blocks")
        frozen = check_attributes(op, dict(attributes or {}))
        head, _, given = layout_of(op, operands, blocks)
        if head is not None:
            check_head(op, self._operand_meta(head))
        for part, block in zip(given, blocks, strict=True):
            self._check_given(op, part.values, part.numbers, block)
        check_blocks(op, blocks)
        targets = tuple(written_values(op, given, blocks))
        results = results_of(blocks[-1])
        metas = (*[meta for meta, _ in results], *[self.metas[value] for value in targets])
        first, into = len(self.metas), targets or None
        step = Step(op, tuple(operands), frozen, NO_DEVICE, into, first, metas, location, tuple(blocks))
        return self._add(step, [home for _, home in results])

    def _check_given(self, op: str, values: Sequence[int], numbers: Sequence[int], block: Program) -> None:
        """MetadataError unless a block accepts these values and numbers."""
        sources = (*block.parameters, *block.captured)
        for value, source in zip(values, sources, strict=True):
            meta = self._tensor_meta(value)
            if meta is not source.meta or self.homes[value] != source.device:
                found = f"{'?' if meta is None else meta} on d{self.homes[value]}"
                raise MetadataError(f"{op} gives %{value}, {found}, for {source.meta} on d{source.device}", op=op)
        for operand, number in zip(numbers, block.number_parameters, strict=True):
            kind = self._operand_meta(operand) if type(operand) is int and operand < 0 else None
            if kind is not SCALAR_TYPES[number.kind]:
                raise MetadataTypeError(f"{op} gives {shown(operand)} for a number, which is {number.kind}", op=op)

    def add(self, step: Step) -> range:
        """Add a step of another program, or one that a client describes, and check it like any other; returns the
        values that it makes. Its operands and targets are values and numbers of this program; its metas of results are
        ignored.
        """
        given = dict(step.attributes)
        if step.op == MOVE:
            (value,) = step.operands
            made = self.move(value, step.device, step.location)
            return range(made, made + 1)
        if step.op == PRINT:
            self.print(given["parts"], step.operands, given["sep"], given["chain"], step.location)
            return range(0)
        if step.op == EFFECT:
            self.effect(given["callback"], step.operands, given["chain"], step.location)
            return range(0)
        if step.op == HOST_CALL:
            return self.host_call(given["callback"], step.operands, given["metas"], step.device, step.location)
        if step.op in COLLECTIVES:
            return self.collective(step.op, step.operands, given, step.location)
        if step.op in CONSTRUCTS:
            return self.construct(step.op, step.operands, step.blocks, given, step.location)
        return self.op(step.op, step.operands, given, step.device, step.into, step.location)

    def _add(self, step: Step, homes: Sequence[int] | None = None) -> range:
        """Add a checked step. `homes`: of its new values, if they differ from the step's device."""
        size, outputs, targets = self.size, step.results, step.into or ()
        if size.steps >= size.limit or size.operands + len(step.operands) > MAX_OPERANDS:
            raise QuotaError(f"a program has at most {size.limit} steps, and {MAX_OPERANDS} operands")
        size.steps += 1
        size.operands += len(step.operands)
        self.steps.append(step)
        new = len(outputs) - len(targets)
        for n in range(new):
            self._new_value(outputs[n], step.device if homes is None else homes[n])
        for meta, target in zip(outputs[new:], targets, strict=True):
            self._new_value(meta, self.homes[target], target)
        return range(step.first, len(self.metas))

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self, results: Sequence[int]) -> Program:
        """The program that returns these values: each made by a step, and no two of one variable."""
        sources = [*range(len(self.parameters)), *self._outside]
        outside = set(sources)
        for value in results:
            self._tensor_meta(value)
            if self.variables[value] in outside:
                raise ProtocolError(f"the result %{value} is a tensor from outside: return a copy (to_device)")
        if len({self.variables[value] for value in results}) < len(results):
            raise ProtocolError("a program returns one tensor twice: return a copy (to_device)")
        order = [*sources, *[value for value in range(len(self.metas)) if value not in outside]]
        renumbering = {value: n for n, value in enumerate(order)}
        return Program(
            numbers=tuple(self.numbers),
            parameters=tuple(self.parameters),
            captured=tuple(self.captures),
            steps=tuple(renumbered(self.steps, renumbering)),
            results=tuple(renumbering[value] for value in results),
            metas=tuple(self.metas[value] for value in order),
            homes=tuple(self.homes[value] for value in order),
            variables=tuple(renumbering[self.variables[value]] for value in order),
        )

    # -- checks --------------------------------------------------------------------------------------------------------

    def _operand_meta(self, operand: int) -> OperandMeta | None:
        if type(operand) is int and operand < 0:
            if ~operand >= len(self.numbers):
                raise ProtocolError(f"there is no number ${~operand} yet")
            return SCALAR_TYPES[self.numbers[~operand].kind]
        return self._tensor_meta(operand)

    def _tensor_meta(self, value: int) -> Meta | None:
        if type(value) is not int or not 0 <= value < len(self.metas):
            raise ProtocolError(f"there is no value %{shown(value)} yet")
        newest = self.newest[self.variables[value]]
        if newest != value:
            raise ProtocolError(f"the value %{value} was overwritten: it is %{newest} now")
        return self.metas[value]

    def _targets(self, name: str, into: Sequence[int]) -> tuple[Meta | None, ...]:
        metas = tuple([self._tensor_meta(value) for value in into])
        if len({self.variables[value] for value in into}) < len(into):
            raise MetadataError(f"{name}: out= names one tensor twice; each result needs its own", op=name)
        return metas

    def _new_value(self, meta: Meta | None, home: int, target: int | None = None) -> int:
        value = len(self.metas)
        variable = value if target is None else self.variables[target]
        self.metas.append(meta)
        self.homes.append(home)
        self.variables.append(variable)
        self.newest[variable] = value
        return value


def renumbered(steps: Sequence[Step], renumbering: Mapping[int, int]) -> Iterator[Step]:
    """The steps with renumbered values; results come last, in order."""
    first = len(renumbering) - sum(len(step.results) for step in steps)
    for step in steps:
        operands = tuple([operand if operand < 0 else renumbering[operand] for operand in step.operands])
        into = None if step.into is None else tuple([renumbering[value] for value in step.into])
        yield step._replace(operands=operands, into=into, first=first)
        first += len(step.results)


def check_value(kind: str, op: str, value: Any) -> None:
    """ProtocolError unless a constant has a value of that type, and other numbers have none; MetadataError for an
    integer of more than 64 bits."""
    if type(value) is not (SCALAR_TYPES[kind] if op == CONSTANT else type(None)):
        raise ProtocolError(f"a {op} of {kind} cannot have the value {shown(value)}")
    if type(value) is int and value not in WIRE_INTEGERS:
        raise MetadataError(f"the integer {shown(value)} has more than 64 bits")


def result_meta(wire: Any) -> Meta:
    """The meta of a host call's result, as (shape, dtype); MetadataError if it is invalid."""
    try:
        meta = decode_meta(wire)
    except (TypeError, ValueError, KeyError) as error:
        raise MetadataError(f"{HOST_CALL}: {error}", op=HOST_CALL) from None
    if not isinstance(meta, Meta):
        raise MetadataError(f"{HOST_CALL}: a result has a shape and a dtype", op=HOST_CALL)
    return meta


def check_leaf(kind: str, op: str, operands: Sequence[int]) -> None:
    """ProtocolError unless a number that is not computed may have that type."""
    if operands:
        raise ProtocolError(f"a {op} takes no numbers")
    if op in (SEED, DRAW) and kind != "int":
        raise ProtocolError(f"a {op} is an int")


def check_slot(slot: Any, what: str) -> None:
    """ProtocolError unless it is the number of a slot."""
    if type(slot) is not int or not 0 <= slot < MAX_SLOTS:
        raise ProtocolError(f"{shown(slot)} is not a {what} of a program: they are numbered from 0, below {MAX_SLOTS}")


def check_name(name: Any) -> None:
    """ProtocolError unless it is a valid name of a parameter: a short printable text, perhaps empty."""
    if type(name) is not str or len(name) > MAX_NAME_LENGTH or (name and not name.isprintable()):
        raise ProtocolError(f"{shown(name)} is not a name of a tensor or number")
