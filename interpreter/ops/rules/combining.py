"""Combines several rules into one, and defines the rules of linear ops, which accept partial operands.

An operand that is a partial sum stays one if the op of a sum is the sum of the ops, up to rounding, for finite
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...layouts.layout import BROADCAST, Partial
from ...layouts.matching import partial_signatures
from ...layouts.rules import LayoutSignature, OpCall, Rule
from ...types.meta import Meta


def chained(*rules: Rule) -> Rule:
    """A rule that yields the signatures of all these rules, in their order."""

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        for one in rules:
            yield from one(call, parts)

    return rule


def linear(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of an op that is linear in all of its tensors together, as `add` is."""
    return partial_signatures(call, "sum")


def linear_in(*positions: int) -> Rule:
    """The rule of an op that is linear in the operands at these positions together; the other operands are whole on
    each device."""
    return lambda call, _parts: partial_signatures(call, "sum", of=positions)


def linear_in_each(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of an op that is linear in each operand alone, as a product is."""
    for position, meta in enumerate(call.metas):
        if isinstance(meta, Meta):
            yield from partial_signatures(call, "sum", of=[position])


def extremes(reduction: str) -> Rule:
    """The rule of `maximum` ("max") or `minimum` ("min")."""
    return lambda call, _parts: partial_signatures(call, reduction)


def any_parts(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of an op that only moves elements: if the parts of x combine to x, their results combine to the
    result in the same way."""
    return partial_signatures(call, "sum", "max", "min", exact=True)


def any_parts_of(*positions: int) -> Rule:
    """As `any_parts`, for the operands at these positions together."""
    return lambda call, _parts: partial_signatures(call, "sum", "max", "min", of=positions, exact=True)


def cast_rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """The rule of casts between floating-point dtypes, and of the real and imaginary parts of complex numbers."""
    x, out = call.metas[0], call.outputs[0]
    if isinstance(x, Meta) and out is not None and x.dtype.kind in "fc" and out.dtype.kind in "fc":
        yield LayoutSignature((Partial("sum"), *[BROADCAST] * (len(call.metas) - 1)), (Partial("sum"),), exact=False)
