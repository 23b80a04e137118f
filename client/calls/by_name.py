"""Ops by name: `call`, which takes any op. `Session.call`, the methods of tensors and most functions use it.

A call that was made before is found by its key, without checks (`call_key`); any other is checked first (`call_anew`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Never

import numpy as np

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.schema.opdef import OpDef, find
from ...interpreter.types.meta import Scalar
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides, signed, too_many
from ..outbox.current import capture_of, plain_of
from ..tensor.operators import GLOBALS, SCALARS
from ..tensor.tensor import Tensor
from .checks import Device
from .op_invocation import OpInvocation
from .signatures import MAX_UNCHECKED_INT

SEQUENCE_TYPES = frozenset((list, tuple))
PLAIN_TYPES = frozenset((bool, int, float, str, type(None)))
NO_KEY: tuple[Any, tuple[Any, ...]] = (None, ())  # for a call that has to be checked before it can have a key
PLAIN_ITEM_TYPES = frozenset((int, str, type(None)))  # of a tuple: values of different types here are never equal


@hides
@signed
def call(
    core: Core,
    name: str,
    inputs: Sequence[Tensor | Scalar] = (),
    attributes: Mapping[str, Any] | None = None,
    *more: Never,
    out: Sequence[Tensor] | None = None,
    device: Device | None = None,
) -> list[Tensor]:
    """Issue one op by name; returns its results at once, as handles.

    The op runs on `device`, else on the home of `out`, else on the home of its first tensor operand, else on the
    first device. MetadataError, at this line, for wrong shapes, dtypes, attributes, devices and names.
    """
    try:
        if more:
            raise located(MetadataTypeError(too_many("call", 1, 3, 3 + len(more))))
        calls = core.calls
        key, operands = call_key(core, name, inputs, attributes, out, device) if calls.native else NO_KEY
        entry = None if key is None else calls.known.get(key)
        # A large int may not fit some dtype, so it has to be checked.
        large = (
            entry is not None
            and entry.integers
            and any(type(x) is int and not 0 <= x <= MAX_UNCHECKED_INT for x in inputs)
        )
        if entry is not None and not large:
            issued = calls.issue(core, entry, operands, out, core.outbox.locations.here())
            if issued is not None:
                return issued
        if entry is None and key is not None and calls.native:
            issued = core.global_calls.again(core, key, operands, out)
            if issued is not None:
                return issued
        return call_anew(core, name, inputs, attributes, out, device, key)
    except PUBLIC_ERRORS as error:
        hide(error)
        raise


def call_anew(
    core: Core, name: str, inputs: Any, attributes: Any, out: Any, device: Device | None, key: Any
) -> list[Tensor]:
    """Issue a call that has not been made before."""
    try:
        capture = capture_of(core.outbox)
        op = find(name if capture is None else plain_of(name))
        frozen = op.freeze(attributes if capture is None else capture.attributes(attributes))
        operands, targets = as_tuple(op, "operands", inputs), None if out is None else as_tuple(op, "out=", out)
        return core.calls.carry_out(core, OpInvocation(op, operands, frozen, targets, device), key)
    except MetadataError as error:
        raise located(error) from None


def call_key(
    core: Core, name: str, inputs: Any, attributes: Any, out: Any, device: Device | None
) -> tuple[Any, tuple[Any, ...]]:
    """A key that identifies a call before anything is checked, and its operands; `NO_KEY` if there is none."""
    if type(name) is not str or type(inputs) not in SEQUENCE_TYPES or not (out is None or are_tensors(out)):
        return NO_KEY
    if device is not None and type(device) is not str:
        return NO_KEY
    home = out[0]._home if out and device is None else device
    metas: list[Any] = []
    operands: list[Any] = []
    for value in inputs:
        if type(value) is Tensor:
            if value._core is not core:
                return NO_KEY
            metas.append(value._meta)
            operands.append(value._id)
            if home is None:
                home = value._home
        elif type(value) in SCALARS:
            metas.append(type(value))
            operands.append(value)
        elif type(value) in GLOBALS:
            if value._core is not core:
                return NO_KEY
            metas.append(value._form)
            operands.append(value)
            if home is None:
                home = value._home
        else:
            return NO_KEY
    if home is None and core.placement is not None:
        return NO_KEY
    targets = None
    if out is not None:
        if any(target._core is not core for target in out):
            return NO_KEY
        if len(out) > 1 and len(set(map(id, out))) < len(out):
            return NO_KEY  # the general path refuses it
        targets = tuple([target._form if type(target) in GLOBALS else target._meta for target in out])
    if attributes is None:
        return (name, tuple(metas), home, targets), tuple(operands)
    if type(attributes) is not dict:
        return NO_KEY
    kinds: Any = tuple(map(type, attributes.values()))  # 1, 1.0 and True are equal, but different attributes
    if not PLAIN_TYPES.issuperset(kinds) and not all(map(is_plain, attributes.values())):
        return NO_KEY
    return (name, tuple(metas), home, targets, tuple(attributes.items()), kinds), tuple(operands)


def is_plain(value: Any) -> bool:
    """Return whether an attribute's value and type can represent its normal form."""
    if type(value) is tuple:
        return PLAIN_ITEM_TYPES.issuperset(map(type, value))
    return type(value) in PLAIN_TYPES or isinstance(value, np.dtype)


def are_tensors(values: object) -> bool:
    return isinstance(values, list | tuple) and all(type(value) is Tensor or type(value) in GLOBALS for value in values)


def as_tuple(op: OpDef, what: str, values: Any) -> tuple[Any, ...]:
    """A sequence as a tuple; MetadataError for anything else."""
    if isinstance(values, Iterable) and not isinstance(values, Tensor):
        try:
            return tuple(values)
        except TypeError:  # an array without dimensions
            pass
    raise MetadataTypeError(f"{op.name}: {what} must be a list of tensors, not {type(values).__name__}", op=op.name)
