"""Matrix products against NumPy."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.meta import DTYPES, Meta


@given(
    shapes=hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, min_side=0, max_side=3),
    dtypes=st.tuples(st.sampled_from(sorted(DTYPES)), st.sampled_from(sorted(DTYPES))),
)
def test_matmul(evaluate, make, assert_same, shapes, dtypes):
    x, y = (make(shape, dtype, i) for i, (shape, dtype) in enumerate(zip(shapes.input_shapes, dtypes, strict=True)))
    with np.errstate(all="ignore"):
        expected = np.matmul(x, y)
    assert_same(evaluate("matmul", x, y), expected)


@pytest.mark.parametrize(("left", "right"), [((), (2,)), ((2, 3), (2, 3)), ((2, 1, 2), (3, 2, 2)), ((2,), (3,))])
def test_shapes_that_do_not_match_are_refused(infer, left, right):
    with pytest.raises(MetadataError, match=r"0-d|do not match|do not broadcast"):
        infer("matmul", Meta.of(left, "float32"), Meta.of(right, "float32"))


def test_a_product_that_no_memory_could_hold_is_refused(infer):
    with pytest.raises(MetadataError, match="too large"):
        infer("matmul", Meta.of((2**60, 1), "int8"), Meta.of((1, 2**60), "int8"))
