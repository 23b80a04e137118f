"""Einstein sums. The comparison with NumPy is in tests/conformance."""

from __future__ import annotations

import numpy as np
import pytest

from ...each_case import each_case


@each_case(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "subscripts are for 2 operands, not 1"),
        ("ij", [(2,)], "does not name the axes of an operand of 1 dimensions"),
        ("i", [(2, 2)], "does not name the axes"),
        ("ij,jk", [(2, 3), (4, 2)], "axis 'j' has the sizes 3 and 4"),
        ("ii", [(2, 3)], "axes 'i' of shape"),
        ("i->ii", [(2,)], "names an axis twice"),
        ("i->j", [(2,)], "axis 'j' of the result is not an axis"),
        ("...i->i", [(2, 2)], "the result does not"),
        ("i1", [(2, 2)], "may contain only letters"),
        ("i->j->k", [(2,)], "may contain only letters"),
        ("......", [(2,)], "may contain only letters"),
        ("ä", [(2,)], "may contain only letters"),
        ("a" * 600, [(2,)], "at most 512"),
        (",".join(["i"] * 40), [(2,)] * 40, "at most 32"),
    ],
)
def test_what_is_refused(evaluate, subscripts, shapes, message):
    with pytest.raises(ValueError, match=message.replace("...", r"\.\.\.")):
        evaluate("einsum", *map(np.ones, shapes), subscripts=subscripts)


def test_numpys_other_form_is_refused_with_what_to_write(session):
    x = session.xp.ones((2, 2))
    with pytest.raises(TypeError, match="a str such as 'ij,jk->ik'"):
        session.xp.einsum(x, [0, 1])


@each_case("dtype", ["float32", "float64", "complex64", "int64"])
def test_large_products_are_those_of_one_loop(evaluate, dtype):
    rng = np.random.default_rng(3)
    x, y, z = (rng.integers(-3, 4, (20, 20)).astype(dtype) for _ in range(3))
    for subscripts in ("ij,jk,kl->il", "ij,ij->i", "ij,kj,kl->"):
        operands = (x, y) if subscripts.count(",") == 1 else (x, y, z)
        np.testing.assert_array_equal(
            evaluate("einsum", *operands, subscripts=subscripts), np.einsum(subscripts, *operands)
        )
