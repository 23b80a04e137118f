"""Random programs of many kinds of steps, from any source of randomness with the methods of `random.Random`.

    random_program(random.Random(7))        # by seed
    @given(PROGRAMS)                        # by hypothesis
    @given(SOURCES)                         # a source for hypothesis, to draw from further

A writer draws steps, and drops those that the builder refuses. It remembers the values that can be read.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.constructs import FORMS
from tensord.interpreter.programs.numbers import ARITHMETIC, kinds_of
from tensord.interpreter.programs.program import Program, Source
from tensord.interpreter.schema.infer import InferCache
from tensord.interpreter.types.meta import Meta

SHAPES: Final = ((), (3,), (4, 3), (3, 4), (1, 3), (4, 4), (0, 3), (2, 4, 4), (1,) * 5)
DTYPES: Final = ("float64", "float64", "float32", "float16", "int64", "int8", "uint64", "bool", "complex64")
DEVICES: Final = 3
UNARY: Final = ("exp", "negative", "abs", "sqrt", "isnan", "logical_not", "relu", "square", "conj", "positive")
BINARY: Final = ("add", "multiply", "subtract", "divide", "maximum", "less", "equal", "power", "bitwise_xor", "atan2")
TEXTS: Final = (
    "",
    "loss",
    "a # b",
    '"',
    "\\",
    "\n",
    "\0",
    "é",
    "\u202e",
    "😀",
    "\\n",
    "%0",
    "x" * 70,
    " ",
    "\x85",
    "\t",
)
NAMES: Final = ("", "", "x", "params['w']", "on", "a.b", "a b", "é", "#", '"', "1", "x" * 256)
LOCATIONS: Final = (
    None,
    None,
    "train.py:31 in step",
    "a # b",
    " x ",
    '"',
    'print "x"',
    "C:\\new",
    7,
    "é.py:1 in f",
    "\n",
)
INTEGERS: Final = (0, 1, -1, 2, 100, 127, 128, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
# Ops with attributes: the number of tensors, and the values that each attribute may have, if given.
WITH_ATTRIBUTES: Final[dict[str, tuple[int, dict[str, Sequence[Any]]]]] = {
    "sum": (1, {"axis": (None, 0, -1, (0, 1), ()), "keepdims": (True, False), "dtype": (None, "float64", "int64")}),
    "var": (1, {"axis": (None, 1), "correction": (0.0, 1.0, 0.5, 1e-300, -0.0)}),
    "argmax": (1, {"axis": (None, 0), "keepdims": (True,)}),
    "vector_norm": (1, {"ord": (2.0, math.inf, -math.inf, 0.1), "axis": (None, 0)}),
    "matrix_norm": (1, {"ord": ("nuc", "fro", 1, math.inf, -2)}),
    "cumulative_sum": (1, {"axis": (0, -1), "include_initial": (True, False)}),
    "softmax": (1, {"axis": (0, -1)}),
    "reshape": (1, {"shape": ((-1,), (1, -1), (12,), (3, 1, 4), ()), "copy": (None, True)}),
    "transpose": (1, {"axes": (None, (1, 0))}),
    "permute_dims": (1, {"axes": ((1, 0), (0, 2, 1))}),
    "broadcast_to": (1, {"shape": ((4, 3), (2, 4, 4), (0, 3))}),
    "expand_dims": (1, {"axis": (0, -1, (0, 2))}),
    "squeeze": (1, {"axis": (None, 0, (0, 1))}),
    "flip": (1, {"axis": (None, 0, (0, 1))}),
    "moveaxis": (1, {"source": (0, (0, 1)), "destination": (-1, (1, 0))}),
    "roll": (1, {"shift": (1, (1, -2)), "axis": (None, 0, (0, 1))}),
    "tile": (1, {"repetitions": ((2,), (1, 2))}),
    "repeat": (1, {"repeats": (0, 3), "axis": (None, 0)}),
    "astype": (1, {"dtype": ("float32", "int64", "bool", "complex128")}),
    "concat": (2, {"axis": (0, None, -1)}),
    "stack": (3, {"axis": (0, -1)}),
    "take": (2, {"axis": (None, 0)}),
    "isin": (2, {"invert": (True, False)}),
    "searchsorted": (2, {"side": ("left", "right")}),
    "tensordot": (2, {"axes": (0, 1, ((0,), (1,)), ((1, 0), (0, 1)))}),
    "einsum": (2, {"subscripts": ("ij,jk->ik", "i,i", "...i,...i->...", "ij, ji")}),
    "diagonal": (1, {"offset": (0, -1, 2)}),
    "tril": (1, {"k": (0, 1, -(2**63), 2**63 - 1)}),
    "diff": (1, {"n": (1, 2)}),
    "fft": (1, {"n": (None, 5), "norm": ("ortho", "forward")}),
    "fftn": (1, {"s": (None, (2, 3)), "axes": (None, (0, 1), (-2, -1))}),
    "layer_norm": (1, {"axis": (-1, (0, 1)), "eps": (1e-5, 1e-12)}),
    "gelu": (1, {"approximate": ("tanh", "none")}),
    "quantile": (2, {"method": ("linear", "nearest"), "axis": (None, 0)}),
    "histogram": (1, {"bins": (3, 10), "range": (None, (0.0, 1.5)), "density": (True, False)}),
    "svd": (1, {"full_matrices": (True, False)}),
    "qr": (1, {"mode": ("reduced", "complete")}),
    "eigh": (1, {}),
    "slogdet": (1, {}),
    "matmul": (2, {}),
    "where": (3, {}),
    "full_like": (1, {"dtype": (None, "float32")}),
    "zeros": (0, {"shape": ((), (3,), (0, 3), (4, 3)), "dtype": ("int8", "complex64", "float64")}),
    "full": (0, {"shape": ((2,), ()), "dtype": (None, "float32")}),
    "arange": (0, {"start": (0, 0.0, -1.5, 2**60), "stop": (None, 7, 7.25, 2**60 + 3), "step": (1, 0.5, 1e-1)}),
    "linspace": (
        0,
        {"start": (0, -2.5, 1j, 2**64 - 1), "stop": (1, 1e300, complex(0.5, -1)), "num": (3, 0), "endpoint": (False,)},
    ),
    "eye": (0, {"n_rows": (3, 0), "n_cols": (None, 4), "k": (-1, 0), "dtype": ("float32",)}),
}
DYNAMIC: Final[dict[str, int]] = {"nonzero": 1, "unique_values": 1, "unique_all": 1, "unique_counts": 1}
RANDOM: Final[dict[str, dict[str, Sequence[Any]]]] = {
    "uniform": {"shape": ((3,), (4, 3)), "dtype": ("float32", "float64"), "low": (0.0, -1.5), "high": (1.0, 2.25)},
    "normal": {"shape": ((3,), ()), "mean": (0.0, 1e-3)},
    "integers": {"shape": ((3,),), "low": (0, -5), "high": (10, 2**31)},
    "bernoulli": {"shape": ((4, 3),), "p": (0.5, 0.25)},
    "permutation": {"n": (0, 5)},
}
INDEX_ENTRIES: Final = (0, -1, None, "...", slice(None), slice(1, None), slice(None, None, -1), slice(0, 2, 2**62))

INFER: Final = InferCache()


class Writer:
    """Draws the steps of one program."""

    def __init__(self, rnd: random.Random, builder: Builder | None = None) -> None:
        self.rnd = rnd
        self.builder = builder or Builder(INFER)
        self.made: list[int] = []  # values of steps
        self.kinds: list[Callable[[], object]] = [
            *[self.unary, self.binary, self.binary, self.with_number, self.with_attributes, self.with_attributes],
            *[self.with_attributes, self.in_place, self.in_place, self.set_item, self.get_item, self.random, self.move],
            *[self.dynamic, self.select, self.number, self.print, self.effect, self.host_call],
            *[self.capture, self.construct],
        ]

    def program(self, steps: int) -> Program:
        """A program of about `steps` steps."""
        for _ in range(self.rnd.randrange(4)):
            self.number()
        for _ in range(self.rnd.randrange(1, 4)):
            self.builder.parameter(self.meta(), self.device(), self.pick(NAMES))
        self.capture()
        self.steps(steps)
        return self.builder.finish(self.results())

    def steps(self, count: int) -> None:
        """Draw about `count` steps."""
        for _ in range(count):
            try:
                self.pick(self.kinds)()
            except MetadataError:
                continue

    def results(self) -> list[int]:
        """Some values that a program may return."""
        newest = [value for value in self.made if self.is_newest(value)]
        outside = {*range(len(self.builder.parameters)), *self.builder._outside}
        own = [value for value in newest if self.builder.variables[value] not in outside]
        return self.rnd.sample(own, self.rnd.randrange(len(own) + 1))

    # -- parts of steps ------------------------------------------------------------------------------------------------

    def pick(self, among: Sequence[Any]) -> Any:
        return among[self.rnd.randrange(len(among))]

    def meta(self) -> Meta:
        return Meta.of(self.pick(SHAPES), self.pick(DTYPES))

    def device(self) -> int:
        return self.rnd.randrange(DEVICES)

    def is_newest(self, value: int) -> bool:
        return self.builder.newest[self.builder.variables[value]] == value

    def value(self) -> int:
        """Any value that can be read."""
        return self.builder.newest[self.pick(sorted(self.builder.newest))]

    def values(self, count: int) -> list[int]:
        return [self.value() for _ in range(count)]

    def attributes(self, among: dict[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: self.pick(values) for name, values in among.items() if self.rnd.randrange(4)}

    def index(self) -> tuple[Any, ...]:
        return tuple(self.pick(INDEX_ENTRIES) for _ in range(self.rnd.randrange(4)))

    def constant(self) -> Any:
        """A constant of any type."""
        (undefined,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | self.rnd.getrandbits(64)))
        ready = (True, False, math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, complex(-0.0, math.nan), 1j, undefined)
        return self.pick((*ready, *INTEGERS, self.rnd.random()))

    def op(self, name: str, operands: Sequence[int], attributes: Any = None, into: Sequence[int] | None = None) -> None:
        location = self.pick(LOCATIONS)
        self.made += self.builder.op(name, operands, attributes, self.device(), into, location)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """A number of any type. Returns its slot."""
        slots = len(self.builder.numbers)
        sorts = ("parameter", "constant", "draw", "seed", "arithmetic", "arithmetic")
        sort = self.pick(sorts[: 6 if self.builder.depth == 1 else 3])
        if sort == "constant":
            value = self.constant()
            return self.builder.number(type(value).__name__, sort, value=value)
        if sort in ("seed", "draw"):
            return self.builder.number("int", sort)
        if sort == "arithmetic" and slots:
            op = self.pick(sorted(ARITHMETIC))
            operands = [self.rnd.randrange(slots) for _ in range(ARITHMETIC[op][0])]
            kinds = kinds_of(op, tuple(self.builder.numbers[slot].kind for slot in operands))
            if kinds:
                return self.builder.number(self.pick(kinds), op, operands)
        return self.builder.number(self.pick(("bool", "int", "float", "complex")), "parameter", name=self.pick(NAMES))

    def unary(self) -> None:
        self.op(self.pick(UNARY), self.values(1))

    def binary(self) -> None:
        self.op(self.pick(BINARY), self.values(2))

    def with_number(self) -> None:
        operands = [self.value(), ~self.number()]
        self.rnd.shuffle(operands)
        self.op(self.pick(BINARY), operands)

    def with_attributes(self) -> None:
        name = self.pick(sorted(WITH_ATTRIBUTES))
        count, among = WITH_ATTRIBUTES[name]
        numbers = [~self.number()] if name in ("full", "full_like") else []
        self.op(name, [*self.values(count), *numbers], self.attributes(among))

    def in_place(self) -> None:
        """An elementwise op, whose result may have to be cast."""
        operands = self.values(self.rnd.randrange(1, 3))
        self.op(
            self.pick(UNARY if len(operands) == 1 else BINARY), operands, None, [self.pick((*operands, self.value()))]
        )

    def get_item(self) -> None:
        self.op("getitem", self.values(1), {"index": self.index()})

    def set_item(self) -> None:
        target, value = self.values(2)
        given = value if self.rnd.randrange(2) else ~self.number()
        self.op("setitem", [target, given], {"index": self.index()}, self.pick((None, [target], [value])))

    def select(self) -> None:
        """Indexing with tensors."""
        target, index = self.values(2)
        name = self.pick(("advanced_getitem", "dynamic_getitem", "masked_select", "advanced_setitem"))
        if name == "masked_select":
            self.op(name, [target, index])
        elif name == "advanced_setitem":
            self.op(name, [target, self.value(), index], {"index": ("tensor",)}, [target])
        else:
            self.op(name, [target, index], {"index": ("tensor", *self.index()[:1])})

    def random(self) -> None:
        name = self.pick(sorted(RANDOM))
        seed = self.builder.number("int", "seed" if self.builder.depth == 1 else "parameter")
        draw = self.builder.number("int", "draw")
        self.op(name, [~seed, ~draw], self.attributes(RANDOM[name]))

    def dynamic(self) -> None:
        self.op(self.pick(sorted(DYNAMIC)), self.values(1))

    def move(self) -> None:
        self.made.append(self.builder.move(self.value(), self.device(), self.pick(LOCATIONS)))

    def print(self) -> None:
        parts = [self.pick((None, *TEXTS)) for _ in range(self.rnd.randrange(4))]
        values = self.values(parts.count(None))
        self.builder.print(parts, values, self.pick((" ", *TEXTS)), self.rnd.randrange(2), self.pick(LOCATIONS))

    def effect(self) -> None:
        values = self.values(self.rnd.randrange(3))
        self.builder.effect(self.rnd.randrange(3), values, self.rnd.randrange(2), self.pick(LOCATIONS))

    def host_call(self) -> None:
        metas = [self.meta().plain for _ in range(self.rnd.randrange(1, 3))]
        values = self.values(self.rnd.randrange(3))
        self.made += self.builder.host_call(self.rnd.randrange(3), values, metas, self.device(), self.pick(LOCATIONS))

    def capture(self) -> None:
        """A captured tensor, in the middle of a program, as in a real capture."""
        self.builder.captured(self.meta(), self.device(), self.pick(NAMES))

    def construct(self) -> None:
        """A step of control flow, whose blocks return their arguments, some of them after an in-place write."""
        builder, op = self.builder, self.pick(sorted(FORMS))
        if builder.depth > 2:
            return
        arguments = [value for value in self.values(self.rnd.randrange(3)) if builder.metas[value] is not None]
        head = self.head(op)
        operands = [*head, *arguments]
        blocks = []
        for number in range(FORMS[op].fewest):
            blocks.append(block := self.block(arguments, op == "while_loop" and number == 0))
            operands += [self.fitting(source) for source in block.captured]
            operands += [~builder.number(number.kind, "parameter") for number in block.number_parameters]
        attributes = {"max_iterations": self.pick((None, 0, 7))} if op == "while_loop" else {}
        self.made += builder.construct(op, operands, blocks, attributes, self.pick(LOCATIONS))

    def head(self, op: str) -> list[int]:
        """The condition of a construct."""
        if not FORMS[op].head:
            return []
        if op == "repeat_loop" and self.rnd.randrange(2):
            return [~self.builder.number("int", "parameter")]
        name = "any" if op == "cond" else "count_nonzero"
        return [*self.builder.op(name, self.values(1), {}, self.device())]

    def fitting(self, source: Source) -> int:
        """A value for a tensor that a block captures."""
        return self.builder.captured(source.meta, source.device)

    def block(self, arguments: Sequence[int], test: bool) -> Program:
        """A block that takes these values. `test`: it is the test of a loop."""
        around, writer = self.builder, Writer(self.rnd, self.builder.block())
        for value in arguments:
            meta = around.metas[value]
            assert meta is not None
            writer.builder.parameter(meta, around.homes[value], self.pick(NAMES))
        writer.capture()
        writer.steps(self.rnd.randrange(4))
        newest = writer.builder.newest
        if test:
            results = [*writer.builder.op("any", [newest[len(arguments)]], {}, self.device())]
        else:
            results = [writer.builder.move(newest[n], around.homes[value]) for n, value in enumerate(arguments)]
        return writer.builder.finish(results)


def random_program(rnd: random.Random, steps: int = 24) -> Program:
    """A program of about `steps` steps; some of the drawn steps are refused and left out."""
    return Writer(rnd).program(steps)


SOURCES: Final = st.randoms(use_true_random=False)
PROGRAMS: Final = SOURCES.map(random_program)
