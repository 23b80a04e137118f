"""Checks the signatures of an op's layout rule without a machine: the results on parts, assembled, against the whole.

The parts of operands are those of `shares`. For partial operands, the parts are drawn, and the whole is their sum,
maximum or minimum. Results are assembled by their layouts: parts are joined, copies are compared, partial results
are combined.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.layouts.layout import Atom, Partial, Split
from tensord.interpreter.layouts.rules import LayoutSignature, OpCall, divided, signatures
from tensord.interpreter.layouts.shares import shares
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import OpDef, find

from ..conftest import meta_of

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def call_of(name: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> OpCall:
    op = find(name)
    metas = tuple(map(meta_of, operands))
    frozen = op.freeze(attributes)
    return OpCall(metas, dict(frozen), infer_once(op, metas, frozen))


def run(op: OpDef, call: OpCall, operands: Sequence[Any]) -> list[np.ndarray]:
    """The results, in memory that had other values before."""
    results = [np.full(meta.shape, 1, meta.dtype) for meta in call.outputs if meta is not None]
    kernel = op.bind(np, len(operands), call.attributes)
    with np.errstate(all="ignore"):
        kernel(*operands, *results)
    return results


def parts_of(operand: Any, atoms: Sequence[Atom | None], grid: Sequence[int]) -> tuple[Any, list[Any]]:
    """The whole of an operand, and each device's part of it, row by row."""
    if not atoms or atoms[0] is None:
        return operand, [operand] * int(np.prod(grid))
    atom, parts = atoms[0], grid[0]
    if isinstance(atom, Split):
        pieces = [operand[share.slices].copy() for share in shares(operand.shape, (parts,), (atom,))]
    elif isinstance(atom, Partial):
        pieces = [np.roll(operand.reshape(-1), 3 * n).reshape(operand.shape) for n in range(parts)]
    else:
        whole, devices = parts_of(operand, atoms[1:], grid[1:])
        return whole, devices * parts
    found = [parts_of(piece, atoms[1:], grid[1:]) for piece in pieces]
    return assembled([whole for whole, _ in found], (atom,), (parts,)), [one for _, devices in found for one in devices]


def assembled(results: Sequence[np.ndarray], atoms: Sequence[Atom], grid: Sequence[int]) -> np.ndarray:
    """The whole value of a result, from its parts."""
    if not atoms:
        return results[0]
    each = len(results) // grid[0]
    pieces = [assembled(results[n * each : (n + 1) * each], atoms[1:], grid[1:]) for n in range(grid[0])]
    if isinstance(atoms[0], Split):
        return np.concatenate(pieces, axis=atoms[0].axis)
    if isinstance(atoms[0], Partial):
        with np.errstate(all="ignore"):
            return np.asarray(reduce(COMBINE[atoms[0].reduction], pieces))
    for other in pieces[1:]:
        assert bits(other) == bits(pieces[0]), "the copies differ"
    return pieces[0]


def bits(array: np.ndarray) -> bytes:
    """The bits of an array, with all NaNs made equal."""
    parts = np.array(array)
    for part in (parts.real, parts.imag) if parts.dtype.kind == "c" else (parts,):
        if part.dtype.kind == "f":
            part[np.isnan(part)] = np.nan
    return parts.tobytes()


def check(name: str, operands: Sequence[Any], attributes: Mapping[str, Any], parts: int) -> int:
    """Check all signatures of a call on `parts` devices.

    Returns their number, without the one whose operands are all whole.
    """
    op, call = find(name), call_of(name, operands, attributes)
    offered = signatures(op, [call], parts)
    for signature in offered[:-1]:
        check_one(op, call, operands, [signature], [parts])
    return len(offered) - 1


def check_on_grid(
    name: str, operands: Sequence[Any], attributes: Mapping[str, Any], grid: Sequence[int], rng: random.Random
) -> None:
    """Check a call on a grid, with a signature in each of its dimensions."""
    op, call = find(name), call_of(name, operands, attributes)
    chosen: list[LayoutSignature] = []
    calls = [call]
    for parts in grid:
        offered = signatures(op, calls, parts)
        reductions = {atom for one in chosen for atom in (*one.inputs, *one.outputs) if isinstance(atom, Partial)}
        fitting = [one for one in offered if _reductions(one) <= reductions or not reductions]
        chosen.append(rng.choice(fitting))
        calls = divided(calls, chosen[-1], parts)
    check_one(op, call, operands, chosen, grid)


def _reductions(one: LayoutSignature) -> set[Partial]:
    return {atom for atom in (*one.inputs, *one.outputs) if isinstance(atom, Partial)}


def check_one(
    op: OpDef, call: OpCall, operands: Sequence[Any], chosen: Sequence[LayoutSignature], grid: Sequence[int]
) -> None:
    """Check metas and values of a call with one signature for each dimension of the grid, unless the op refuses the
    data."""
    inputs = list(zip(*[one.inputs for one in chosen], strict=True))
    pairs = [parts_of(operand, atoms, grid) for operand, atoms in zip(operands, inputs, strict=True)]
    try:
        expected = run(op, call, [whole for whole, _ in pairs])
    except (TypeError, ValueError, IndexError):
        return
    try:
        found = on_shares(op, call, [devices for _, devices in pairs], chosen, grid)
        inexact = not all(one.exact for one in chosen)
        eps = coarsest([*expected, *operands]) if inexact else 0.0
        terms = absolute(op, call, [whole for whole, _ in pairs]) if inexact else expected
        for n, whole in enumerate(expected):
            parts = [results[n] for results in found]
            made = assembled(parts, [one.outputs[n] for one in chosen], grid)
            assert (made.shape, made.dtype) == (whole.shape, whole.dtype)
            assert_as_declared(made, whole, eps, [whole, terms[n], *parts])
    except Exception as error:
        raise AssertionError(f"{op.name} of {call}, {chosen} on {grid}: {error!r}") from error


def on_shares(
    op: OpDef, call: OpCall, given: Sequence[Sequence[Any]], chosen: Sequence[LayoutSignature], grid: Sequence[int]
) -> list[list[np.ndarray]]:
    """The results of each device, after a check that their metas are those of the divided calls."""
    calls = [call]
    for signature, parts in zip(chosen, grid, strict=True):
        calls = divided(calls, signature, parts)
    found = []
    for part, piece in enumerate(calls):
        operands = [devices[part] for devices in given]
        assert tuple(map(meta_of, operands)) == piece.metas, "shares and divided calls disagree"
        frozen = op.freeze(piece.attributes)
        assert dict(frozen) == dict(piece.attributes), "the attributes are not in their normal form"
        assert infer_once(op, piece.metas, frozen) == piece.outputs, "inference on a share gives another meta"
        found.append(run(op, piece, operands))
    return found


def coarsest(arrays: Sequence[Any]) -> float:
    """The epsilon of the least precise array; 0 if there are no floats."""
    floats = [x.dtype for x in arrays if getattr(x, "dtype", np.dtype(bool)).kind in "fc"]
    return max([float(np.finfo(dtype).eps) for dtype in floats], default=0.0)


def absolute(op: OpDef, call: OpCall, operands: Sequence[Any]) -> list[np.ndarray]:
    """The op on absolute values: for a sum of products, the sum of its terms' magnitudes."""
    return run(op, call, [np.abs(x).astype(x.dtype) if isinstance(x, np.ndarray) else x for x in operands])


def assert_as_declared(found: np.ndarray, whole: np.ndarray, eps: float, sizes: Sequence[np.ndarray]) -> None:
    """Assert that the results are equal in all bits if `eps` is 0, else close, relative to the largest of `sizes`,
    where both are finite."""
    if eps == 0:
        assert bits(found) == bits(whole), f"{found} instead of {whole}"
        return
    both = np.isfinite(found) & np.isfinite(whole)
    largest = max([float(np.max(np.abs(x[np.isfinite(x)]), initial=1e-30)) for x in sizes])
    np.testing.assert_allclose(found[both], whole[both], rtol=300 * eps, atol=300 * eps * largest)
