"""The operators, reflected and in-place ones included: on Python numbers, array_api_strict's arrays and NumPy's."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tensord.client.tensor import operators

from ..each_case import each_case
from .arrays import arrays, operands
from .calls import Call, call, quietly
from .judge import Entry
from .rules import unbroadcastable
from .test_against_strict_elementwise import values_for
from .test_against_strict_linalg import matmul

BINARY = "add and_ eq floordiv ge gt le lshift lt mod mul ne or_ pow rshift sub truediv xor"
OPS = {**operators.BINARY, **operators.COMPARISONS}
UNARY = "abs invert neg pos"


def binary(name: str) -> Entry:
    """With the values of the operator's function; Python has the operators of two scalars."""
    drawn = values_for(OPS[name.removesuffix("_")])
    tensors = operands(2, drawn.pop("make")).filter(lambda given: any(isinstance(x, np.ndarray) for x in given))
    calls = st.builds(Call, tensors, st.just({}))
    options = {"operates": getattr(operator, name), "late": name == "pow"}
    return Entry(calls, promotes=(0, 1), forbids=unbroadcastable, **options, **drawn)


OPERATORS = {
    **{name: Entry(call(arrays()), operates=getattr(operator, name)) for name in UNARY.split()},
    **{name: binary(name) for name in BINARY.split()},
    "matmul": Entry(matmul(), promotes=(0, 1), ulps=8, operates=operator.matmul),
}


@each_case("name", OPERATORS)
def test_operators(name, conforms):
    conforms(name, OPERATORS[name])


def unfit(function: Any, casting: Any) -> Any:
    """Does the result not fit the tensor, in size or in kind?"""

    def forbids(made: Call) -> Exception | None:
        wrong = None if function is operator.matmul else unbroadcastable(made)
        if wrong is not None:
            return wrong
        try:
            whole = quietly(function, *made.args)
        except Exception as error:
            return error
        x = made.args[0]
        if whole.shape != x.shape:
            return ValueError("the result has another shape")
        return None if np.can_cast(whole.dtype, x.dtype, casting) else TypeError("the result has another dtype")

    return forbids


def in_place(name: str) -> Entry:
    """NumPy casts to a smaller dtype of the kind, and so do we, without a product's sums; array_api_strict does not."""
    entry = OPERATORS[name]
    return replace(
        entry,
        calls=entry.calls.filter(lambda made: isinstance(made.args[0], np.ndarray)),
        forbids=unfit(getattr(operator, name), "no" if name == "matmul" else "same_kind"),
        operates=getattr(operator, f"i{name.removesuffix('_')}"),
    )


IN_PLACE = {f"i{name}": in_place(name) for name in (*BINARY.split(), "matmul") if name not in operators.COMPARISONS}


@each_case("name", IN_PLACE)
def test_operators_in_place(name, conforms):
    conforms(name, IN_PLACE[name])
