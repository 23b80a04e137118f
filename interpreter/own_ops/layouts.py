"""The layouts of global tensors with which each device computes its own part of an op, as stated by a user.

    layouts=[((split(0), broadcast), split(0)), ((broadcast, split(1)), split(1))]

Each entry is a signature: the layouts of the operands, and that of the result, or a tuple of those of the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..layouts.layout import Atom, Broadcast, Partial, Split
from ..layouts.rules import LayoutSignature, OpCall, Rule
from ..types.meta import Meta

NO_LAYOUTS_STATED = "its definition states no layouts"


def rule_of(stated: Sequence[Any], inputs: int, outputs: int, name: str) -> Rule:
    """The rule that offers the stated signatures where the operands have such axes; TypeError if they are no
    signatures."""
    signatures = [signature_of(each, inputs, outputs, name) for each in stated]

    def rule(call: OpCall, _parts: int) -> Iterator[LayoutSignature]:
        for one in signatures:
            given = one.inputs[: len(call.metas)]
            if fits(call.metas, given) and fits(call.outputs, one.outputs) and are_equally_long(call, one):
                yield one._replace(inputs=given)

    return rule


def signature_of(stated: Any, inputs: int, outputs: int, name: str) -> LayoutSignature:
    """The signature that a user states for one combination of layouts."""
    advice = f"{name}: layouts are a list of (layouts of the operands, layout of the result)"
    if not isinstance(stated, tuple) or len(stated) != 2 or not isinstance(stated[0], tuple):
        raise TypeError(f"{advice}, not {stated!r}")
    results = stated[1] if isinstance(stated[1], tuple) and not is_layout(stated[1]) else (stated[1],)
    signature = LayoutSignature(stated[0], results)
    if not all(map(is_layout, (*signature.inputs, *signature.outputs))):
        raise TypeError(f"{advice}, and a layout is split(axis), broadcast or partial(...), not {stated!r}")
    if len(signature.inputs) != inputs or len(signature.outputs) != outputs:
        raise TypeError(f"{name}: {stated!r} is not of {inputs} operands and {outputs} results")
    return signature


def is_layout(given: Any) -> bool:
    return isinstance(given, Split | Broadcast | Partial)


def fits(metas: Sequence[Any], atoms: Sequence[Atom | None]) -> bool:
    """Return whether all of them are tensors that have the split axes."""
    return all(
        isinstance(meta, Meta) and (not isinstance(atom, Split) or 0 <= atom.axis < meta.ndim)
        for meta, atom in zip(metas, atoms, strict=True)
    )


def are_equally_long(call: OpCall, signature: LayoutSignature) -> bool:
    """Return whether all split axes are equally long; otherwise the shares of the operands would not match."""
    pairs = (*zip(call.metas, signature.inputs, strict=False), *zip(call.outputs, signature.outputs, strict=True))
    found = [meta.shape[atom.axis] for meta, atom in pairs if isinstance(meta, Meta) and isinstance(atom, Split)]
    return len(set(found)) < 2
