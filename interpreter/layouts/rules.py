"""Rules: the layouts of an op's operands that give a layout of its results without a byte of another device.

A rule concerns one dimension of the grid: it returns the signatures of a call (OneFlow's SBP signatures) for a number
of devices. Each signature divides the call into calls on shares, one for each device, which are ordinary calls. So a
second dimension of the grid divides these in turn:

    calls = [Call(metas, attributes, outputs)]
    for parts in placement.grid:
        chosen = one of signatures(op, calls, parts)
        calls = divided(calls, chosen, parts)        # in the end one for each device, row by row
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..types.meta import Meta, Metas
from .layout import BROADCAST, Atom, Split
from .shares import cuts


class OpCall(NamedTuple):
    """A call of an op: the metas of operands and results, and all attributes in their normal form."""

    metas: Metas
    attributes: Mapping[str, Any]
    outputs: tuple[Meta | None, ...]


# The attributes of a call on a share: (the whole call, the call on the share without its attributes, the number of the
# device) -> attributes.
Localise: TypeAlias = Callable[[OpCall, OpCall, int], Mapping[str, Any]]


class LayoutSignature(NamedTuple):
    """Layouts of operands and results along one dimension of the grid.

    `inputs`: None for a Python scalar, which fits any layout. `localise`: makes the attributes of a share, if they
    differ from the whole's. `exact`: the results' bits are those of the op on the whole. Otherwise they are within the
    bound of the op's family (docs/layouts.md), and reproducible.
    """

    inputs: tuple[Atom | None, ...]
    outputs: tuple[Atom, ...]
    localise: Localise | None = None
    exact: bool = True


# For a call on a number of devices; the best signatures first.
Rule: TypeAlias = Callable[[OpCall, int], Iterable[LayoutSignature]]


class Ruled(Protocol):
    """The part of an op's definition that concerns rules: it has a rule, or the reason why it has none."""

    @property
    def layouts(self) -> Rule | str: ...


def signatures(op: Ruled, calls: Sequence[OpCall], parts: int) -> tuple[LayoutSignature, ...]:
    """The signatures of an op's calls on `parts` devices each: those that all of the calls have, the best first.

    `calls`: the whole call, or the calls into which it is divided so far, which may differ in shape. In the last
    signature all operands and results are broadcast.
    """
    found = [_of(op, call, parts) for call in calls]
    common = [key for key in found[0] if all(key in others for others in found[1:])]
    return tuple([found[0][key]._replace(exact=all(others[key].exact for others in found)) for key in common])


_Key: TypeAlias = tuple[tuple[Atom | None, ...], tuple[Atom, ...]]


def _of(op: Ruled, call: OpCall, parts: int) -> dict[_Key, LayoutSignature]:
    """The signatures of one call by their layouts of operands and results; of several with the same layouts, the
    first."""
    rule, everywhere = op.layouts, whole(call)
    offered = () if isinstance(rule, str) or None in call.outputs else rule(call, parts)
    signatures: dict[_Key, LayoutSignature] = {}
    for signature in (*offered, everywhere):
        signatures.setdefault((signature.inputs, signature.outputs), signature)
    last = (everywhere.inputs, everywhere.outputs)
    chosen = signatures.pop(last)
    return {**signatures, last: chosen}


def whole(call: OpCall) -> LayoutSignature:
    """The signature in which each device computes everything."""
    inputs = tuple([BROADCAST if isinstance(meta, Meta) else None for meta in call.metas])
    return LayoutSignature(inputs, (BROADCAST,) * len(call.outputs))


def divided(calls: Sequence[OpCall], signature: LayoutSignature, parts: int) -> list[OpCall]:
    """The calls on the shares of each call, in the order of the devices."""
    return [_piece(call, signature, part, parts) for call in calls for part in range(parts)]


def _piece(call: OpCall, signature: LayoutSignature, part: int, parts: int) -> OpCall:
    """The call on one device's shares."""

    def share(meta: Meta, atom: Atom | None) -> Meta:
        if not isinstance(atom, Split):
            return meta
        axis, shape = atom.axis, meta.shape
        length = cuts(shape[axis], parts)[part][1]
        return Meta.of((*shape[:axis], length, *shape[axis + 1 :]), meta.dtype)

    inputs, outputs = zip(call.metas, signature.inputs, strict=True), zip(call.outputs, signature.outputs, strict=True)
    metas = tuple([share(meta, atom) if isinstance(meta, Meta) else meta for meta, atom in inputs])
    results = tuple([None if meta is None else share(meta, atom) for meta, atom in outputs])
    piece = OpCall(metas, call.attributes, results)
    return piece if signature.localise is None else piece._replace(attributes=signature.localise(call, piece, part))
