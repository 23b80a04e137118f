"""Calls of families whose rules look at shapes and attributes, drawn at random: views, indices, reductions, products.

Inexact results are held to the bound of docs/layouts.md, where the op on absolute values gives that bound.
"""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.layouts.layout import Partial
from tensord.interpreter.layouts.rules import signatures
from tensord.interpreter.schema.opdef import find

from .checking import assembled, call_of, check, check_on_grid, on_shares, parts_of

EXAMPLES = int(os.environ.get("TENSORD_CONFORMANCE_EXAMPLES", "8"))
drawn = settings(max_examples=4 * EXAMPLES)
SIZES = st.sampled_from([4, 2, 3, 6, 1, 5, 0])
SHAPES = st.lists(SIZES, min_size=1, max_size=4).map(tuple)
LONG = [(40, 3), (3, 40), (9, 2, 33), (130, 5), (17, 1030)]
DTYPES = st.sampled_from(["float32", "int32", "complex128", "float16", "bool", "uint8"])


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    drawn_ = rng.integers(0, 9, shape) if np.dtype(dtype).kind in "biu" else rng.normal(size=shape)
    return np.asarray(drawn_).astype(dtype)


def holds(name: str, operands: list[Any], attributes: dict[str, Any], data: st.DataObject) -> None:
    """All signatures on some devices, and some of them on a grid."""
    check(name, operands, attributes, data.draw(st.integers(2, 4), "devices"))
    grid = data.draw(st.sampled_from([(2, 2), (3, 2), (2, 3)]), "grid")
    check_on_grid(name, operands, attributes, grid, random.Random(data.draw(st.integers(0, 99), "seed")))


@drawn
@given(SHAPES, DTYPES, st.data())
def test_a_reshape_keeps_what_is_cut_at_the_same_elements(shape, dtype, data):
    factors = [n for size in shape for n in ((2, 2) if size == 4 else (2, 3) if size == 6 else (size,))]
    new: list[int] = []
    for factor in factors:
        if new and data.draw(st.booleans()):
            new[-1] *= factor
        else:
            new += [1, factor] if data.draw(st.booleans()) else [factor]
    holds("reshape", [values(shape, dtype)], {"shape": tuple(new)}, data)


@drawn
@given(SHAPES, DTYPES, st.data())
def test_a_basic_index_keeps_whole_axes(shape, dtype, data):
    entries: list[Any] = []
    for size in shape:
        bounds = st.none() | st.integers(-size - 1, size + 1)
        step = data.draw(st.sampled_from([None, 1, 2, -1]))
        chosen = data.draw(st.sampled_from(["whole", "slice", "int", "new", "whole"]))
        entries += [None] if chosen == "new" else []
        whole = chosen in {"whole", "new"} or size == 0
        entries.append(
            slice(None) if whole else 0 if chosen == "int" else slice(data.draw(bounds), data.draw(bounds), step)
        )
    index = tuple(entries[: data.draw(st.integers(0, len(entries)))])
    x = values(shape, dtype)
    holds("getitem", [x], {"index": index}, data)
    holds("setitem", [x, values(x[index].shape, dtype, 1)], {"index": index}, data)
    holds("setitem", [x, values(x[index].shape[-1:], dtype, 1)], {"index": index}, data)


@drawn
@given(st.lists(st.sampled_from([4, 2, 3, 5, 1]), min_size=2, max_size=4).map(tuple), DTYPES, st.data())
def test_tensors_that_select_keep_the_other_axes(shape, dtype, data):
    common = data.draw(st.sampled_from([(2,), (3, 2), (1,), (5,)]))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=2))
    shapes = [common[-data.draw(st.integers(1, len(common))) :] for _ in axes]
    selectors = [values(one, "int64", n) % shape[n] for one, n in zip(shapes, sorted(axes), strict=True)]
    index: tuple[Any, ...] = tuple("tensor" if n in axes else slice(None) for n in range(len(shape)))
    if data.draw(st.booleans()):
        index = (*index, None)
    x = values(shape, dtype)
    holds("advanced_getitem", [x, *selectors], {"index": index}, data)
    (selected,) = call_of("advanced_getitem", [x, *selectors], {"index": index}).outputs
    assert selected is not None
    holds("advanced_setitem", [x, values(selected.shape, dtype, 1), *selectors], {"index": index}, data)


@drawn
@given(SHAPES, DTYPES, st.booleans(), st.data())
def test_a_mask_of_leading_axes_is_cut_with_them(shape, dtype, whole, data):
    mask = values(shape if whole else shape[:1], "bool")
    holds("advanced_setitem", [values(shape, dtype), values((), dtype, 1), mask], {"index": ("tensor",)}, data)


@drawn
@given(st.lists(st.sampled_from([4, 2, 3, 7, 1]), min_size=1, max_size=3).map(tuple), DTYPES, st.data())
def test_reductions_keep_axes_and_combine_parts(shape, dtype, data):
    axes = data.draw(st.none() | st.sets(st.integers(-len(shape), -1)).map(tuple))
    attributes = {"axis": axes, "keepdims": data.draw(st.booleans())}
    x = values(shape, dtype)
    names = ["sum", "prod", "max", "min", "any", "all", "mean", "var", "count_nonzero"]
    for name in data.draw(st.permutations(names))[:4]:
        if dtype.startswith("complex") and name in {"max", "min"}:
            continue
        holds(name, [x], attributes, data)


@drawn
@given(st.sampled_from(LONG), st.sampled_from(["float32", "float64"]), st.data())
def test_sums_that_are_declared_exact_have_the_bits_of_the_whole(shape, dtype, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    for name in ("sum", "mean", "std", "vector_norm"):
        holds(name, [values(shape, dtype)], {"axis": axis}, data)
    for name in ("softmax", "log_softmax", "layer_norm"):
        holds(name, [values(shape, dtype)], {"axis": axis}, data)


@drawn
@given(st.data(), st.sampled_from(["float32", "int64", "complex64", "bool"]))
def test_products_of_matrices_keep_stacks_rows_and_columns(data, dtype):
    rows, inner, columns = (data.draw(SIZES) for _ in range(3))
    stacks = data.draw(st.sampled_from([((), ()), ((3,), ()), ((2, 3), (3,)), ((3,), (2, 1)), ((1,), (4,))]))
    left = (inner,) if data.draw(st.booleans()) else (*stacks[0], rows, inner)
    right = (inner,) if data.draw(st.booleans()) else (*stacks[1], inner, columns)
    holds("matmul", [values(left, dtype), values(right, dtype, 1)], {}, data)
    holds("vecdot", [values(left, dtype), values((inner,), dtype, 1)], {}, data)


@drawn
@given(st.data(), st.sampled_from(["float64", "int32"]))
def test_sums_of_products_by_labels(data, dtype):
    sizes = {label: data.draw(SIZES) for label in "abc"}
    terms = [data.draw(st.lists(st.sampled_from("abc"), max_size=3)) for _ in range(data.draw(st.integers(1, 3)))]
    used = sorted({label for term in terms for label in term})
    kept = data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))]
    subscripts = f"{','.join(map(''.join, terms))}->{''.join(kept)}"
    operands = [values(tuple(sizes[label] for label in term), dtype, n) for n, term in enumerate(terms)]
    holds("einsum", operands, {"subscripts": subscripts}, data)


@drawn
@given(SIZES, SIZES, SIZES, st.integers(2, 4))
def test_a_product_is_within_its_bound(rows, inner, columns, parts):
    given_ = [values((rows, inner), "float32"), values((inner, columns), "float32", 1)]
    op, call = find("matmul"), call_of("matmul", given_, {})
    exact, terms = (np.matmul(*[change(x.astype("float64")) for x in given_]) for change in (np.positive, np.abs))
    for one in signatures(op, [call], parts)[:-1]:
        if any(isinstance(atom, Partial) for atom in one.inputs):
            continue
        devices = [parts_of(x, (atom,), (parts,))[1] for x, atom in zip(given_, one.inputs, strict=True)]
        results = [found for (found,) in on_shares(op, call, devices, [one], [parts])]
        error = np.abs(assembled(results, one.outputs, [parts]) - exact)
        assert (error <= (inner + parts) * np.finfo("float32").eps * terms).all()
