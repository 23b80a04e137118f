"""Numbers of a program: parameters, constants, inputs of random draws, and arithmetic among them.

`evaluate` computes the numbers with Python's own semantics before each run; so a run gets plain numbers. The type of a
number is part of the program. If the arithmetic gives another type for the present values (`2 ** -1`), the program does
not fit them, and `evaluate` raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, Final, NamedTuple, cast

from ..errors import MetadataOverflowError, MetadataTypeError
from ..types.meta import SCALAR_TYPES, Scalar

PARAMETER: Final = "parameter"
CONSTANT: Final = "constant"
SEED: Final = "seed"  # of the session's random numbers, at the time of the run
DRAW: Final = "draw"  # the number of one of the run's random calls, each counted once, in order
LEAVES: Final = frozenset((PARAMETER, CONSTANT, SEED, DRAW))
# In the blocks of control flow everything else is computed outside. A draw there is the number of a part of the
# construct's random call, a new one each time that the block runs.
BLOCK_LEAVES: Final = frozenset((PARAMETER, CONSTANT, DRAW))

MAX_BITS: Final = 4096  # of an intermediate integer: a few multiplications could make one of any size
SAMPLE_VALUES: Final = {"bool": (True,), "int": (2, -2), "float": (0.5, -0.5), "complex": (1j,)}  # of each type


def invert(value: Any) -> Any:
    """`~value`, without Python's warning that the inverse of a bool is an int."""
    return value ^ -1


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent`; MetadataOverflowError instead of a very large integer."""
    if (
        type(base) is int
        and isinstance(exponent, int)
        and abs(base) > 1
        and exponent * base.bit_length() > 2 * MAX_BITS
    ):
        raise too_long("pow")
    return base**exponent


def too_long(op: str) -> MetadataOverflowError:
    """The error of an integer that is too long."""
    return MetadataOverflowError(f"{op} among numbers: the integer has more than {MAX_BITS} bits", op=op)


ARITHMETIC: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "neg": (1, operator.neg),
    "pos": (1, operator.pos),
    "abs": (1, operator.abs),
    "invert": (1, invert),
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "truediv": (2, operator.truediv),
    "floordiv": (2, operator.floordiv),
    "mod": (2, operator.mod),
    "pow": (2, power),
    "and": (2, operator.and_),
    "or": (2, operator.or_),
    "xor": (2, operator.xor),
}


class Number(NamedTuple):
    """One number: `kind`: the name of its Python type; `op`: how it is made from `operands`, earlier numbers.

    `value`: of a constant; `name`: of a parameter, for people, perhaps empty.
    """

    kind: str
    op: str
    operands: tuple[int, ...] = ()
    value: Scalar | None = None
    name: str = ""


@cache
def kinds_of(op: str, operands: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the types that the arithmetic may give for numbers of these types; none if Python refuses them."""
    try:
        found = [ARITHMETIC[op][1](*values) for values in product(*[SAMPLE_VALUES[kind] for kind in operands])]
    except TypeError:
        return ()
    return tuple(dict.fromkeys(type(value).__name__ for value in found))


def evaluate(
    numbers: Sequence[Number], parameters: Sequence[Scalar], seed: int = 0, draws: Sequence[int] = ()
) -> list[Scalar]:
    """The value of each number. `parameters`, `draws`: one value for each number of that kind, in order.

    MetadataTypeError if a value is missing or has another type; MetadataOverflowError for an intermediate integer of
    more than `MAX_BITS` bits. Arithmetic raises what Python raises.
    """
    given, drawn = iter(parameters), iter(draws)
    values: list[Any] = []
    for number in numbers:
        op = number.op
        if op == PARAMETER:
            value = next(given, None)
        elif op == CONSTANT:
            value = cast(Scalar, number.value)
        elif op == SEED:
            value = seed
        elif op == DRAW:
            value = next(drawn, None)
        else:
            value = ARITHMETIC[op][1](*[values[slot] for slot in number.operands])
            if type(value) is int and value.bit_length() > MAX_BITS:
                raise too_long(op)
        if type(value) is not SCALAR_TYPES[number.kind]:
            raise MetadataTypeError(
                f"a number of the program is {number.kind}, and {type(value).__name__} for these values", op=op
            )
        values.append(value)
    return values
