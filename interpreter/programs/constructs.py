"""Constructs: steps of control flow, whose blocks are programs of their own.

| step | head | blocks | results |
|---|---|---|---|
| `cond` | a truth value | one if it is true, one if it is not | those of the block |
| `case` | an index | one for each index from 0 | those of the block |
| `while_loop` | | a test and a body, which runs as long as the test's result is true | the state |
| `repeat_loop` | a count | a body, which runs so many times | the state |

A construct's operands are its head, then the arguments, which each block takes as its parameters; then, for each block,
the tensors that it captures and the numbers that are its parameters.

A loop's arguments are its *state*: a body's results are the next arguments. The state begins as a copy, so a write to
it does not reach the arguments. A write to another operand overwrites that operand in the surrounding program, too: the
overwritten operands are the construct's last results (`into`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from ..errors import MetadataError, MetadataTypeError, ProtocolError
from ..types.meta import Meta
from ..wire.forms import shown
from .numbers import PARAMETER
from .program import CASE, COND, REPEAT, WHILE, Program, Step

MAX_BLOCKS: Final = 256  # blocks of a step
MAX_BLOCK_DEPTH: Final = 16  # levels of blocks
MAX_ITERATIONS: Final = "max_iterations"
MAX_ITERATIONS_LIMIT: Final = 1 << 62  # of it


class ConstructForm(NamedTuple):
    """The form of a construct. `fewest`, `most`: numbers of blocks; the last block of a loop is its body."""

    head: str  # the operand that it decides by; "" for none
    fewest: int
    most: int
    loops: bool


FORMS: Final = {
    COND: ConstructForm("a truth value", 2, 2, False),
    CASE: ConstructForm("an index", 1, MAX_BLOCKS, False),
    WHILE: ConstructForm("", 2, 2, True),
    REPEAT: ConstructForm("a count", 1, 1, True),
}


class BlockOperands(NamedTuple):
    """The operands of a block: values for its parameters and captured tensors, slots for its numbers."""

    values: tuple[int, ...]
    numbers: tuple[int, ...]


class ConstructLayout(NamedTuple):
    """A construct's operands. `head` is None for a loop without one."""

    head: int | None
    arguments: tuple[int, ...]
    given: tuple[BlockOperands, ...]


def layout_of(op: str, operands: Sequence[int], blocks: Sequence[Program]) -> ConstructLayout:
    """The operands of a construct by their roles. ProtocolError if they are too many or too few."""
    form, rest = FORMS[op], iter(operands)
    counts = [(len(block.captured), len(block.number_parameters)) for block in blocks]
    arguments = len(blocks[0].parameters) if blocks else 0
    wanted = bool(form.head) + arguments + sum(map(sum, counts))
    if len(operands) != wanted or not form.fewest <= len(blocks) <= form.most:
        raise ProtocolError(f"{op} has {len(blocks)} blocks and {len(operands)} operands, which do not fit")

    def taken(count: int) -> tuple[int, ...]:
        return tuple(islice(rest, count))

    head = taken(1)[0] if form.head else None
    shared = taken(arguments)
    given = [BlockOperands((*shared, *taken(captured)), taken(numbers)) for captured, numbers in counts]
    return ConstructLayout(head, shared, tuple(given))


def layout(step: Step) -> ConstructLayout:
    """The operands of a construct."""
    return layout_of(step.op, step.operands, step.blocks)


def numbers_given(step: Step) -> list[tuple[Program, dict[int, int]]]:
    """Each block of a construct, with its number parameters: their slots in the block -> the surrounding slots."""
    pairs = []
    for block, given in zip(step.blocks, layout(step).given, strict=True):
        own = [slot for slot, number in enumerate(block.numbers) if number.op == PARAMETER]
        pairs.append((block, dict(zip(own, [~operand for operand in given.numbers], strict=True))))
    return pairs


def written_values(op: str, given: Sequence[BlockOperands], blocks: Sequence[Program]) -> list[int]:
    """The values whose variables a block may write, without duplicates; not those of a loop's state."""
    written: dict[int, None] = {}
    for (values, _), block in zip(given, blocks, strict=True):
        own = len(block.parameters) if FORMS[op].loops else 0
        written.update((values[n], None) for n in block.written if n >= own)
    return list(written)


# -- checks ------------------------------------------------------------------------------------------------------------


def check_attributes(op: str, attributes: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The attributes in their normal form."""
    wanted = {MAX_ITERATIONS} if op == WHILE else set()
    if attributes.keys() != wanted:
        raise ProtocolError(f"{op} has the attributes {sorted(wanted)}")
    most = attributes.get(MAX_ITERATIONS)
    if most is not None and (type(most) is not int or not 0 <= most <= MAX_ITERATIONS_LIMIT):
        raise MetadataTypeError(f"max_iterations must be an int of at least 0, not {shown(most)}", op=op)
    return tuple(attributes.items())


def check_head(op: str, meta: Any) -> None:
    """MetadataError unless a construct may decide by a value with that meta, or a number of that type."""
    if isinstance(meta, type):
        fits = op == REPEAT and meta is int
    else:
        fits = meta is not None and meta.shape == () and (op == COND or meta.dtype.kind in "iu")
    if not fits:
        what = "a tensor without dimensions" + ("" if op == COND else ", of integers")
        said = "of a shape that data decide" if meta is None else getattr(meta, "__name__", meta)
        raise MetadataError(f"{op} decides by {FORMS[op].head}: {what}; this one is {said}", op=op)


def check_blocks(op: str, blocks: Sequence[Program]) -> None:
    """MetadataError unless the blocks take the same arguments, and return the same results."""
    for block in blocks:
        if [source[:2] for source in block.parameters] != [source[:2] for source in blocks[0].parameters]:
            raise MetadataError(f"the blocks of {op} take different tensors", op=op)
    if op == WHILE:
        check_test(blocks[0])
    body = blocks[-1]
    if FORMS[op].loops:
        state = [(source.meta, source.device) for source in body.parameters]
        difference(op, "the state that the body takes", state, "what it returns", results_of(body))
    for number, block in enumerate(blocks if op in (COND, CASE) else ()):
        difference(op, "its block 0 returns", results_of(blocks[0]), f"block {number}", results_of(block))


def check_test(block: Program) -> None:
    """MetadataError unless the block's result is one truth value."""
    found = [meta for meta, _ in results_of(block)]
    if len(found) != 1 or found[0] is None or found[0].shape != ():
        given = ", ".join("?" if meta is None else str(meta) for meta in found) or "nothing"
        raise MetadataError(f"the test of a {WHILE} returns one tensor without dimensions, not {given}", op=WHILE)


def results_of(block: Program) -> list[tuple[Meta | None, int]]:
    """Meta and home of each result."""
    return [(block.metas[value], block.homes[value]) for value in block.results]


def difference(op: str, one: str, wanted: Sequence[Any], other: str, found: Sequence[Any]) -> None:
    """MetadataError if the two lists differ."""
    if list(wanted) != list(found):
        said = " and ".join(f"{what}: {described(values)}" for what, values in ((one, wanted), (other, found)))
        raise MetadataError(f"{op} needs the same shapes, dtypes and devices each time; {said}", op=op)


def described(values: Sequence[tuple[Meta | None, int]]) -> str:
    """Metas and homes, for people."""
    return ", ".join(f"{'?' if meta is None else meta} on d{home}" for meta, home in values) or "nothing"


def blocks_of(program: Program) -> Iterator[Program]:
    """The blocks of its steps."""
    for step in program.steps:
        yield from step.blocks
