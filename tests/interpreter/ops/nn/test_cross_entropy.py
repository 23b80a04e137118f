"""The direct kernels of the cross entropy: the bits and the errors of the general ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.ops.nn.cross_entropy import MAX_DIRECT_LABELS
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import BoundKernel, find
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case
from ...conftest import meta_of
from ..differences import FLOATS

NAMES = ("cross_entropy", "cross_entropy_grad")
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# Rows, few or many, of one dimension or several; classes, few or many. The last pairs are turned into columns.
SHAPES = [
    ((1,), 1),
    ((3,), 4),
    ((2, 3), 5),
    ((2, 1, 4), 70),
    ((0,), 3),
    ((), 4),
    ((3,), 300),
    ((150,), 10),
    ((9, 16), 8),
]
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 6e4, -6e4]


def packed(x: np.ndarray) -> np.ndarray:
    return x


def spread(x: np.ndarray) -> np.ndarray:
    """The same values, with other elements between the rows."""
    return np.concatenate([x, x], axis=-1)[..., : x.shape[-1]] if x.ndim else x


LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [
    packed,
    lambda x: x.copy(order="F"),
    spread,
    lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    lambda x: x[..., ::-1].copy()[..., ::-1] if x.ndim else x,
    lambda x: np.broadcast_to(x[:1], x.shape) if x.ndim else x,
]


def kernels(name: str, logits: np.ndarray, labels: np.ndarray, **attributes: Any) -> tuple[BoundKernel | None, ...]:
    """The direct kernel and the general one; None without a direct one."""
    op, metas = find(name), (meta_of(logits), meta_of(labels))
    frozen = op.freeze(attributes)
    assert op.direct is not None
    direct = op.direct(metas, infer_once(op, metas, frozen), dict(frozen))
    return direct, op.bind(np, 2, dict(frozen))


def outcome(kernel: BoundKernel, logits: np.ndarray, labels: np.ndarray, out: np.ndarray) -> tuple[str, bytes]:
    """The error of a kernel, and its result afterwards."""
    raised = ""
    with np.errstate(all="ignore"):
        try:
            kernel(logits, labels, out)
        except ValueError as error:
            raised = str(error)
    return raised, out.tobytes()


@st.composite
def operands(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Logits, some of them special, and labels, one of them perhaps wrong."""
    rows, classes = draw(st.sampled_from(SHAPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    logits = (rng.standard_normal((*rows, classes)) * 3).astype(draw(st.sampled_from(FLOATS)))
    labels = rng.integers(0, min(classes, 100), rows).astype(draw(st.sampled_from(INTEGERS)))
    with np.errstate(all="ignore"):
        for value in draw(st.lists(st.sampled_from(SPECIAL), max_size=4)) if logits.size else ():
            logits.flat[rng.integers(logits.size)] = value
        if logits.size and draw(st.booleans()):
            logits[..., : rng.integers(classes + 1)] = draw(st.sampled_from([-np.inf, 2.0]))
    if labels.size and draw(st.integers(0, 3)) == 0:
        bounds = np.iinfo(labels.dtype)
        wrong = draw(st.sampled_from([bounds.min, bounds.max, classes, -1]))
        labels.flat[rng.integers(labels.size)] = min(max(wrong, bounds.min), bounds.max)
    return draw(st.sampled_from(LAYOUTS))(logits), draw(st.sampled_from(LAYOUTS))(labels)


def compare(name: str, logits: np.ndarray, labels: np.ndarray, *, apart: bool, scale: float = 1.0) -> None:
    """Both kernels, with a result that is packed or has its rows `apart`."""
    direct, general = kernels(name, logits, labels, **({"scale": scale} if name == "cross_entropy_grad" else {}))
    assert general is not None
    assert (direct is None) == (labels.ndim == 0 or labels.size == 0 or labels.dtype == np.uint64)
    if direct is None:
        return
    shape = logits.shape if name == "cross_entropy_grad" else ()
    outs = [(spread if apart else packed)(np.ones(shape, logits.dtype)) for _ in range(2)]
    assert outcome(direct, logits, labels, outs[0]) == outcome(general, logits, labels, outs[1])


@given(given=operands(), scale=st.sampled_from([1.0, -0.3, 1e30, 1e300]), apart=st.booleans())
@pytest.mark.parametrize("name", NAMES)
def test_they_give_what_the_general_kernels_give(
    name: str, given: tuple[np.ndarray, np.ndarray], scale: float, apart: bool
) -> None:
    compare(name, *given, scale=scale, apart=apart)


@each_case("dtype", FLOATS)
@each_case("name", NAMES)
def test_they_do_so_in_every_layout_and_with_rows_of_minus_infinity(name: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    every = itertools.product(SHAPES, LAYOUTS, LAYOUTS)
    for turn, ((rows, classes), of_logits, of_labels) in enumerate(every):
        logits = rng.standard_normal((*rows, classes)).astype(dtype)
        logits[rng.random(rows) < 0.3] = -np.inf
        labels = rng.integers(0, classes, rows)
        compare(name, of_logits(logits), of_labels(labels), apart=(turn + turn // len(LAYOUTS)) % 2 == 1)


@each_case("dtype", FLOATS)
def test_the_gradient_may_be_written_over_the_logits(dtype: str) -> None:
    rng = np.random.default_rng(3)
    logits, labels = rng.standard_normal((200, 10)).astype(dtype), rng.integers(0, 10, 200)
    found = [
        outcome(kernel, over, labels, over)
        for kernel in kernels("cross_entropy_grad", logits, labels)
        if kernel is not None
        for over in [logits.copy()]
    ]
    assert len(found) == 2
    assert found[0] == found[1]


@each_case("dtype", [name for name in INTEGERS if name != "uint64"])
@each_case("name", NAMES)
def test_labels_of_narrow_types_are_refused_where_a_class_has_their_bits(name: str, dtype: str) -> None:
    logits, labels = np.zeros((2, 300), "float32"), np.array([0, 1]).astype(dtype)
    labels[1] = np.iinfo(dtype).min or np.iinfo(dtype).max
    out = np.ones(() if name == "cross_entropy" else logits.shape, "float32")
    direct, general = kernels(name, logits, labels)
    assert direct is not None
    assert general is not None
    found = outcome(direct, logits, labels, out.copy())
    assert found == outcome(general, logits, labels, out.copy())
    assert ("labels must be in [0, 300)" in found[0]) == (dtype != "uint8")


@pytest.mark.parametrize("name", NAMES)
def test_there_is_none_for_many_rows_whose_numbers_would_be_kept(name: str) -> None:
    def direct(rows: int) -> BoundKernel | None:
        op, metas = find(name), (Meta.of((rows, 2), "float32"), Meta.of((rows,), "int64"))
        frozen = op.freeze({})
        assert op.direct is not None
        return op.direct(metas, infer_once(op, metas, frozen), dict(frozen))

    assert direct(MAX_DIRECT_LABELS) is not None
    assert direct(MAX_DIRECT_LABELS + 1) is None
