"""One line of a program's text as tokens, and readers of values, metas and attributes.

A line is read token by token, by one regular expression that never backtracks; nothing is read ahead, and nothing nests
deeper than `MAX_ATTRIBUTE_DEPTH`. So time and memory are linear in an untrusted text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from ..errors import MetadataError, MetadataTypeError, ProtocolError, QuotaError
from ..schema.suggestions import similar
from ..types.meta import DTYPES, Meta
from ..wire.forms import shown
from .records import MAX_ATTRIBUTE_DEPTH

T = TypeVar("T")
MAX_LIST_LENGTH: Final = 1 << 16  # elements of a list
MAX_SHORT_LIST_LENGTH: Final = 64  # attributes, or results, of a step; dimensions of a meta
MAX_NUMBER_LENGTH: Final = 64  # characters of a number; tensord writes 24 at most
TOKEN: Final = re.compile(
    r" *+(?:"
    r"(?P<value>%[0-9]++)|"
    r"(?P<slot>\$[0-9]++)|"
    r"(?P<float>-?[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?+|[eE][+-]?[0-9]++)|-inf\b)|"
    r"(?P<int>-?[0-9]++)|"
    r"(?P<word>[A-Za-z_][A-Za-z0-9_.]*+)|"
    r'"(?P<string>(?:[^"\\]++|\\.)*+)"|'
    r"(?P<mark>[:,=?\[\]{}()])|"
    r"(?P<comment>#.*+)|"
    r"(?P<end>\Z))"
)
ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
SIMPLE_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
CONSTANTS: Final = {"None": None, "True": True, "False": False, "inf": math.inf}


class TokenLine:
    """The tokens of one line. `kind` and `text` are those of the next one."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._at = 0
        self.kind = ""
        self.text = ""
        self.advance()

    def advance(self) -> str:
        """Step over the next token; returns its text."""
        taken = self.text
        match = TOKEN.match(self._line, self._at)
        if match is None:
            rest = self._line[self._at :].lstrip(" ")
            raise ProtocolError('a string without its closing "' if rest[0] == '"' else f"unexpected {shown(rest)}")
        self._at = match.end()
        self.kind = str(match.lastgroup)
        self.text = match[self.kind]
        return taken

    def complain(self, expected: str) -> NoReturn:
        """Raise ProtocolError: the next token is not the expected one."""
        met = "the end of the line" if self.kind in ("end", "comment") else shown(self.text)
        raise ProtocolError(f"expected {expected}, not {met}")

    def take(self, kind: str, expected: str) -> str:
        """The text of the next token, which has to be of that kind."""
        if self.kind != kind:
            self.complain(expected)
        return self.advance()

    def at(self, text: str) -> bool:
        """Return whether that mark or word comes next."""
        return self.text == text and self.kind in ("mark", "word")

    def accept(self, text: str) -> bool:
        """Step over that mark or word if it comes next."""
        found = self.at(text)
        if found:
            self.advance()
        return found

    def need(self, text: str) -> None:
        """Step over that mark or word, which has to come next."""
        if not self.accept(text):
            self.complain(repr(text))

    def finish(self) -> str | None:
        """The comment, if any, at the end of the line, which has to come next."""
        if self.kind == "comment":
            return self.text.removeprefix("#").removeprefix(" ") or None
        if self.kind != "end":
            self.complain("the end of the line")
        return None

    def several(self, read: Callable[[], T], limit: int = MAX_LIST_LENGTH) -> list[T]:
        """One or more, with commas between them."""
        items = [read()]
        while self.accept(","):
            if len(items) >= limit:
                raise QuotaError(f"a list has at most {limit} elements here")
            items.append(read())
        return items

    # -- values and metas ----------------------------------------------------------------------------------------------

    def value(self) -> int:
        """A value: `%3`."""
        return small(self.take("value", "a value such as %0"))

    def values(self) -> list[int]:
        """Values, perhaps none."""
        return self.several(self.value) if self.kind == "value" else []

    def slot(self) -> int:
        """A number: `$3`."""
        return small(self.take("slot", "a number such as $0"))

    def slots(self) -> list[int]:
        """Numbers, perhaps none."""
        return self.several(self.slot) if self.kind == "slot" else []

    def operand(self) -> int:
        """A value, or a number as an operand of a step."""
        return ~self.slot() if self.kind == "slot" else self.value()

    def name(self) -> str:
        """A name, perhaps none."""
        return self.string() if self.kind == "string" else self.advance() if self.kind == "word" else ""

    def device(self) -> int:
        """`on d1`."""
        self.need("on")
        word = self.take("word", "a device such as d0")
        if not re.fullmatch("d[0-9]+", word):
            raise ProtocolError(f"{shown(word)} is not a device of a program: they are d0, d1, ...")
        return small(word)

    def results(self) -> list[tuple[int, Meta | None]]:
        """The results of a step with their metas, perhaps none."""
        return self.several(self.result, MAX_SHORT_LIST_LENGTH) if self.kind == "value" else []

    def result(self) -> tuple[int, Meta | None]:
        """`%3: float32[2]`."""
        value = self.value()
        self.need(":")
        return value, self.meta()

    def known_meta(self) -> Meta:
        """A meta that is not `?`."""
        meta = self.meta()
        if meta is None:
            raise MetadataError("a tensor from outside has a shape and a dtype")
        return meta

    def meta(self) -> Meta | None:
        """`float32[2, 3]`, or `?`."""
        if self.accept("?"):
            return None
        dtype = self.take("word", "a dtype or ?")
        if dtype not in DTYPES:
            hint = similar(dtype, DTYPES) or f"; use one of {', '.join(DTYPES)}"
            raise MetadataTypeError(f"unknown dtype {shown(dtype)}{hint}")
        self.need("[")
        shape = [] if self.at("]") else self.several(self.integer, MAX_SHORT_LIST_LENGTH)
        self.need("]")
        try:
            return Meta.of(tuple(shape), dtype)
        except ValueError as error:
            raise MetadataError(str(error)) from None

    # -- attributes and constants --------------------------------------------------------------------------------------

    def attributes(self) -> dict[str, Any]:
        """`{axis: 1, keepdims: True}`; nothing for no attributes."""
        attributes: dict[str, Any] = {}
        if not self.accept("{"):
            return attributes
        for name, value in self.several(self.pair, MAX_SHORT_LIST_LENGTH):
            if name in attributes:
                raise ProtocolError(f"the attribute {shown(name)} occurs twice")
            attributes[name] = value
        self.need("}")
        return attributes

    def pair(self) -> tuple[str, Any]:
        """`axis: 1`."""
        name = self.take("word", "the name of an attribute")
        self.need(":")
        return name, self.attribute()

    def attribute(self, levels: int = MAX_ATTRIBUTE_DEPTH) -> Any:
        """The value of an attribute or a constant."""
        if self.accept("["):
            return self.elements(levels - 1)
        if self.kind == "int" or self.at(":"):
            return self.integer_or_slice()
        if self.kind == "string":
            return self.string()
        if self.accept("complex"):
            return self.complex_number()
        return self.floating() if self.kind == "float" or self.at("nan") else self.constant()

    def elements(self, levels: int) -> tuple[Any, ...]:
        """The rest of `[1, -1]`."""
        if levels < 0:
            raise ProtocolError(f"attributes are nested at most {MAX_ATTRIBUTE_DEPTH} levels deep")
        found = [] if self.at("]") else self.several(lambda: self.attribute(levels))
        self.need("]")
        return tuple(found)

    def integer_or_slice(self) -> Any:
        """`5`, or `1:5`, `:`, `::-1`."""
        start = self.optional_integer()
        if not self.accept(":"):
            return start
        stop = self.optional_integer()
        return ("slice", start, stop, self.optional_integer() if self.accept(":") else None)

    def optional_integer(self) -> int | None:
        """An integer, if one comes next."""
        return self.integer() if self.kind == "int" else None

    def integer(self) -> int:
        """An integer."""
        token = self.take("int", "an integer")
        if len(token) > MAX_NUMBER_LENGTH:
            raise MetadataError(f"the integer {shown(token)} has more than 64 bits")
        return int(token)

    def constant(self) -> Any:
        """`None`, `True`, `False` or `inf`."""
        word = self.take("word", "a value")
        if word not in CONSTANTS:
            raise ProtocolError(f"unknown value {shown(word)}; strings are in quotes")
        return CONSTANTS[word]

    def complex_number(self) -> complex:
        """The rest of `complex(1.0, -2.0)`."""
        self.need("(")
        real = self.floating()
        self.need(",")
        imaginary = self.floating()
        self.need(")")
        return complex(real, imaginary)

    def floating(self) -> float:
        """`1.5`, `1e+300`, `inf`, `-inf`, `nan`, or `nan("fff8000000000000")`."""
        if self.accept("inf"):
            return math.inf
        if not self.accept("nan"):
            return real_of(self.take("float", "a float such as 1.0"))
        if not self.accept("("):
            return math.nan
        bits = self.string()
        self.need(")")
        return nan_of(bits)

    def string(self) -> str:
        """A string without its quotes and escapes."""
        text = self.take("string", "a string")
        return ESCAPE.sub(letter_of, text) if "\\" in text else text


def small(token: str) -> int:
    """The number in `%3`, `$3` or `d3`."""
    if len(token) > 9:
        raise ProtocolError(f"{shown(token)} is beyond what a program may have")
    return int(token[1:])


def real_of(token: str) -> float:
    """A float; MetadataError for one that is too large for any but infinity."""
    if len(token) > MAX_NUMBER_LENGTH:
        raise MetadataError(f"the float {shown(token)} has more than {MAX_NUMBER_LENGTH} characters")
    found = float(token)
    if math.isinf(found) and not token.endswith("inf"):
        raise MetadataError(f"the float {shown(token)} is too large; infinity is inf")
    return found


def nan_of(bits: str) -> float:
    """The NaN of those bits, in hexadecimal."""
    if re.fullmatch("[0-9a-f]{16}", bits):
        (found,) = struct.unpack("<d", struct.pack("<Q", int(bits, 16)))
        if math.isnan(found):
            return float(found)
    raise ProtocolError(f"{shown(bits)} are not the bits of a NaN")


def letter_of(match: re.Match[str]) -> str:
    """The character of an escape."""
    plain = match[4]
    if plain is not None:
        if plain not in SIMPLE_ESCAPES:
            raise ProtocolError(f"unknown escape \\{plain} in a string")
        return SIMPLE_ESCAPES[plain]
    code = int(match[1] or match[2] or match[3], 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ProtocolError(f"unknown character {match[0]}")
    return chr(code)
