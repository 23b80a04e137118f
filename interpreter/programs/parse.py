"""From the untrusted text of a program to the program: line by line through the builder, which checks each step.

The first error ends it, and names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..errors import MetadataError, MetadataTypeError, ProtocolError, QuotaError, TensordError
from ..types.meta import Meta
from ..wire.forms import shown
from .builder import Builder
from .numbers import CONSTANT, PARAMETER
from .program import COLLECTIVES, CONSTRUCTS, EFFECT, HOST_CALL, MOVE, PRINT, Program
from .text import HEADER, NON_OP_DEFAULTS, VERSION, meta_text, printable
from .tokens import CONSTANTS, TokenLine

MAX_PROGRAM_LENGTH: Final = 1 << 24  # characters of a text
MAX_LINES: Final = 1 << 18
MAX_LINE_LENGTH: Final = 1 << 21  # characters of a line; the longest print is shorter
LINE_LENGTH_SHOWN: Final = 160  # characters of a line in an error
BEGINNING: Final = f"the text of a program begins with '{HEADER} {VERSION}'"


def parse(text: str) -> Program:
    """The program that a text describes (docs/programs.md). Raises as `Program.parse` says."""
    if type(text) is not str:
        raise MetadataTypeError(f"the text of a program is a str, not {type(text).__name__}")
    if len(text) > MAX_PROGRAM_LENGTH or text.count("\n") >= MAX_LINES:
        raise QuotaError(f"the text of a program has at most {MAX_PROGRAM_LENGTH} characters and {MAX_LINES} lines")
    reader = ProgramParser()
    for number, line in enumerate(text.split("\n"), 1):
        reader.numbered_line = (number, line)
        try:
            reader.read(line.removesuffix("\r"))
        except TensordError as error:
            at, wrong = reader.numbered_line
            message = f"line {at}: {error.message}\n    {printable(wrong[:LINE_LENGTH_SHOWN])}"
            raise type(error)(message, op=error.op) from None
    return reader.finish()


class OpenConstruct:
    """A step with blocks that is being read. `numbered_line`: its line; `said`: its results, as written in the line."""

    def __init__(self, line: TokenLine, numbered_line: tuple[int, str], said: Sequence[Meta | None]) -> None:
        self.numbered_line = numbered_line
        self.said = said
        self.op = line.advance()
        self.operands = line.several(line.operand) if line.kind in ("value", "slot") else []
        self.attributes = {**NON_OP_DEFAULTS.get(self.op, {}), **line.attributes()}
        self.into = tuple(line.several(line.value)) if line.accept("into") else None
        self.location = line.finish()
        self.blocks: list[Program] = []


class ProgramParser:
    """Reads one line after the other. `numbered_line`: number and text of a wrong line."""

    def __init__(self) -> None:
        self.numbered_line = (0, "")
        self._program: Program | None = None
        self._builder = Builder()  # of the program, or of the block that is being read
        self._around: list[Builder] = []  # those of the surrounding programs, outermost first
        self._constructs: list[OpenConstruct] = []  # those around the next line
        self._begun = False
        self._kinds: dict[str, Callable[[TokenLine], None]] = {
            "number": self._number,
            "parameter": self._parameter,
            "captured": self._captured,
            "return": self._return,
            "block": self._block,
            "end": self._end,
        }
        self._steps: dict[str, Callable[[TokenLine], None]] = {
            PRINT: self._print,
            EFFECT: self._effect,
            HOST_CALL: self._host_call,
            MOVE: self._move,
            **dict.fromkeys(COLLECTIVES, self._collective),
        }

    def read(self, text: str) -> None:
        """Read a line, perhaps empty or a comment."""
        if len(text) > MAX_LINE_LENGTH:
            raise QuotaError(f"a line has at most {MAX_LINE_LENGTH} characters")
        if not text.isprintable():
            odd = next(letter for letter in text if not letter.isprintable())
            raise ProtocolError(f"the line holds {odd!r}, which is not printable; strings have escapes")
        if not text.strip(" ") or text.lstrip(" ").startswith("#"):
            return
        line = TokenLine(text)
        if self._program is not None:
            raise ProtocolError("the return is the last line of a program")
        if not self._begun:
            self._header(line)
            return
        kind = self._kinds.get(line.text) if line.kind == "word" else None
        if self._between and kind not in (self._block, self._end):
            raise ProtocolError(f"after a {self._constructs[-1].op} come its blocks: block, or end")
        if kind is None:
            self._step(line)
            return
        line.advance()
        kind(line)

    def finish(self) -> Program:
        """The program, after the last line."""
        if self._program is None:
            raise ProtocolError("the text of a program ends with a return" if self._begun else BEGINNING)
        return self._program

    @property
    def _between(self) -> bool:
        """Return whether the reader is after a step with blocks, and in none of them."""
        return len(self._constructs) > len(self._around)

    def _header(self, line: TokenLine) -> None:
        if not all(line.accept(word) for word in HEADER.split()):
            raise ProtocolError(BEGINNING)
        version = line.integer()
        line.finish()
        if version != VERSION:
            raise ProtocolError(f"the text is of version {shown(version)}; this tensord reads version {VERSION}")
        self._begun = True

    def _return(self, line: TokenLine) -> None:
        values = line.values()
        line.finish()
        program = self._builder.finish(values)
        if self._around:
            self._constructs[-1].blocks.append(program)
            self._builder = self._around.pop()
        else:
            self._program = program

    # -- from outside --------------------------------------------------------------------------------------------------

    def _number(self, line: TokenLine) -> None:
        in_order(f"${line.slot()}", f"${len(self._builder.numbers)}")
        name = line.name()
        line.need(":")
        kind = line.take("word", "the type of a number")
        op, value, operands = PARAMETER, None, []
        if line.accept("="):
            op = CONSTANT if is_constant(line) else line.advance()
            value = line.attribute() if op is CONSTANT else None
            operands = line.slots()
        line.finish()
        self._builder.number(kind, op, operands, value, name)

    def _parameter(self, line: TokenLine) -> None:
        self._source(line, self._builder.parameter)

    def _captured(self, line: TokenLine) -> None:
        if self._builder.steps:
            raise ProtocolError("captured tensors come before steps")
        self._source(line, self._builder.captured)

    def _source(self, line: TokenLine, add: Callable[[Meta, int, str], int]) -> None:
        in_order(f"%{line.value()}", f"%{len(self._builder.metas)}")
        name = line.name()
        line.need(":")
        meta, device = line.known_meta(), line.device()
        line.finish()
        add(meta, device, name)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, line: TokenLine) -> None:
        results = line.results()
        first = len(self._builder.metas)
        for number, (value, _) in enumerate(results, first):
            in_order(f"%{value}", f"%{number}")
        if results:
            line.need("=")
        if line.kind != "word":
            line.complain("an op")
        op, stated_metas = line.text, [meta for _, meta in results]
        if op in CONSTRUCTS:
            self._constructs.append(OpenConstruct(line, self.numbered_line, stated_metas))
            return
        self._steps.get(op, self._op)(line)
        self._compare(op, first, stated_metas)

    def _op(self, line: TokenLine) -> None:
        op = line.advance()
        operands = line.several(line.operand) if line.kind in ("value", "slot") else []
        attributes = line.attributes()
        into = line.several(line.value) if line.accept("into") else None
        self._builder.op(op, operands, attributes, line.device(), into, line.finish())

    def _move(self, line: TokenLine) -> None:
        line.advance()
        self._builder.move(line.value(), line.device(), line.finish())

    def _collective(self, line: TokenLine) -> None:
        kind = line.text
        line.advance()
        values, names = line.values(), tuple(sorted(NON_OP_DEFAULTS[kind]))
        *given, location = rest_of(line, kind, *names)
        self._builder.collective(kind, values, dict(zip(names, given, strict=True)), location)

    def _print(self, line: TokenLine) -> None:
        line.advance()
        values: list[int] = []

        def part() -> str | None:
            if line.kind != "value":
                return line.string()
            values.append(line.value())
            return None

        parts = line.several(part) if line.kind in ("value", "string") else []
        self._builder.print(parts, values, *rest_of(line, PRINT, "sep", "chain"))

    def _effect(self, line: TokenLine) -> None:
        line.advance()
        values = line.values()
        callback, chain, location = rest_of(line, EFFECT, "callback", "chain")
        self._builder.effect(callback, values, chain, location)

    def _host_call(self, line: TokenLine) -> None:
        line.advance()
        values = line.values() if line.kind == "value" else []
        given = line.attributes()
        if given.keys() != {"callback", "metas"} or not isinstance(given["metas"], tuple):
            raise ProtocolError(f"{HOST_CALL} has the attributes callback and metas")
        self._builder.host_call(given["callback"], values, given["metas"], line.device(), line.finish())

    def _block(self, line: TokenLine) -> None:
        """The beginning of a block."""
        if not self._between:
            raise ProtocolError("a block comes after a step of control flow")
        construct = self._constructs[-1]
        if line.kind in ("value", "slot"):
            construct.operands += line.several(line.operand)
        line.finish()
        nested = self._builder.block()
        self._around.append(self._builder)
        self._builder = nested

    def _end(self, line: TokenLine) -> None:
        """The end of a step with blocks."""
        if not self._between:
            raise ProtocolError("there is no step with blocks to end here; a block ends with its return")
        line.finish()
        construct, builder = self._constructs.pop(), self._builder
        self.numbered_line = construct.numbered_line
        first = len(builder.metas)
        builder.construct(construct.op, construct.operands, construct.blocks, construct.attributes, construct.location)
        written = builder.steps[-1].into
        if construct.into != written:
            shown_values = ", ".join(f"%{value}" for value in written or ())
            raise ProtocolError(f"{construct.op} writes in place what its blocks write: {shown_values or 'nothing'}")
        self._compare(construct.op, first, construct.said)

    def _compare(self, op: str, first: int, stated_metas: Sequence[Meta | None]) -> None:
        """MetadataError unless the text agrees with the metas that the op infers."""
        made = self._builder.metas[first:]
        if len(stated_metas) != len(made):
            plural = "s" * (len(made) != 1)
            raise MetadataError(f"{op} makes {len(made)} result{plural}, and the text names {len(stated_metas)}", op=op)
        for value, (wanted, meta) in enumerate(zip(stated_metas, made, strict=True), first):
            if wanted is not meta:
                message = f"%{value} is {meta_text(wanted)} in the text, but {op} makes {meta_text(meta)}"
                raise MetadataError(message, op=op)


def in_order(given: str, wanted: str) -> None:
    """ProtocolError unless it is the next of its kind."""
    if given != wanted:
        raise ProtocolError(f"{given} is named where {wanted} comes next")


def is_constant(line: TokenLine) -> bool:
    """Return whether a constant's value follows, and no arithmetic."""
    return line.kind != "word" or line.text in (*CONSTANTS, "nan", "complex")


def rest_of(line: TokenLine, op: str, *names: str) -> list[Any]:
    """The attributes of a step that is no op, by these names and with its defaults; and its location."""
    given = {**NON_OP_DEFAULTS[op], **line.attributes()}
    location = line.finish()
    if given.keys() != set(names):
        raise ProtocolError(f"{op} has the attributes {' and '.join(names)}")
    return [*(given[name] for name in names), location]
