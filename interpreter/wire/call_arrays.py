"""CALL messages as arrays, for the hot path.

A CALL stays an array on the path of most ops: the client appends it and marks releases in it, and the machine runs it
from the array (`vm/admission/inline.py`). These functions read the parts of such an array. A call that takes the long
path through admission is a named message like all others.

Measured, in alternation on a busy machine with two cores: the chain row of `python -m bench` takes 7.7 us per op from
the array, and 8.7 us if each call is checked and named first (the least of 64 runs each); of that, the machine's own
time per op is 3.0 and 4.5 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .messages import CALL, Call, Message

_SIGNATURE, _INPUTS, _OUTPUTS, _RELEASED = (
    Call._fields.index(name) + 1 for name in ("signature", "inputs", "outputs", "released")
)


def new_call(signature: int, inputs: Sequence[Any], outputs: Sequence[int], location: int) -> list[Any]:
    """A call that releases nothing yet."""
    return [CALL, signature, inputs, outputs, 0, location]


def signature_of(call: Message) -> int:
    """The number of a call's signature."""
    number: int = call[_SIGNATURE]
    return number


def inputs_of(call: Message) -> Sequence[Any]:
    """Ids, or scalars where the signature says so."""
    inputs: Sequence[Any] = call[_INPUTS]
    return inputs


def outputs_of(call: Message) -> Sequence[int]:
    """The ids of a call's results."""
    outputs: Sequence[int] = call[_OUTPUTS]
    return outputs


def mark_released(call: list[Any], operands: int) -> None:
    """Release these operands with the call: a bit for each, inputs first, then outputs."""
    call[_RELEASED] |= operands
