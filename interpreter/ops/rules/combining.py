"""One rule after another, and the rules of linear ops: what they make of partial operands.

A partial sum passes where the op on the sum is the sum of the ops, up to rounding, for finite numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...layouts.layout import BROADCAST, Partial
from ...layouts.matching import passing
from ...layouts.rules import LayoutSignature, OpCall, Rule
from ...types.meta import Meta


def chained(*rules: Rule) -> Rule:
    """The signatures of all these rules, in their order."""

    def rule(call: OpCall, parts: int) -> Iterator[LayoutSignature]:
        for one in rules:
            yield from one(call, parts)

    return rule


def sums(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of an op that is linear in all of its tensors together, as `add` is."""
    return passing(call, "sum")


def sums_of(*places: int) -> Rule:
    """Of an op that is linear in the operands at these places together, the others being broadcast."""
    return lambda call, _parts: passing(call, "sum", of=places)


def factors(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of an op that is linear in each operand, as a product is."""
    for place, meta in enumerate(call.metas):
        if isinstance(meta, Meta):
            yield from passing(call, "sum", of=[place])


def extremes(reduction: str) -> Rule:
    """Of `maximum` or `minimum`."""
    return lambda call, _parts: passing(call, reduction)


def any_parts(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of an op that only moves elements: whatever parts are to the value, they are to the result."""
    return passing(call, "sum", "max", "min", exact=True)


def any_parts_of(*places: int) -> Rule:
    """The same of the operands at these places together."""
    return lambda call, _parts: passing(call, "sum", "max", "min", of=places, exact=True)


def casts(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    """Of casts among floating-point dtypes, and of parts of complex numbers."""
    x, out = call.metas[0], call.outputs[0]
    if isinstance(x, Meta) and out is not None and x.dtype.kind in "fc" and out.dtype.kind in "fc":
        yield LayoutSignature((Partial("sum"), *[BROADCAST] * (len(call.metas) - 1)), (Partial("sum"),), exact=False)
