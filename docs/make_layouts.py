"""Writes the table of layout rules in docs/layouts.md, from the rules: which signatures a call of each family has.

.venv/bin/python docs/make_layouts.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.layouts.layout import Atom
from tensord.interpreter.layouts.rules import LayoutSignature, OpCall, signatures
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta, Metas

PAGE: Final = Path(__file__).with_name("layouts.md")
MARK: Final = "<!-- written by docs/make_layouts.py from the rules -->"
PARTS: Final = 2
# Family, op, operands (shapes of float32, or "int64 shape" as a tuple with the dtype first, or a number), attributes.
SAMPLES: Final[tuple[tuple[str, str, tuple[Any, ...], dict[str, Any]], ...]] = (
    ("elementwise", "exp", ((4, 6),), {}),
    ("linear", "add", ((4, 6), (6,)), {}),
    ("a product", "multiply", ((4, 6), 2.0), {}),
    ("extremes", "maximum", ((4,), (4,)), {}),
    ("sums", "sum", ((4, 6),), {"axis": 0}),
    ("means", "mean", ((4, 6),), {"axis": 1}),
    ("other reductions", "var", ((4, 6),), {"axis": 0}),
    ("of bools", "any", (("bool", 4, 6),), {"axis": 0}),
    ("views", "matrix_transpose", ((4, 6),), {}),
    ("reshape", "reshape", ((4, 6),), {"shape": (24,)}),
    ("basic indices", "getitem", ((4, 6),), {"index": (("slice", 1, 3, None),)}),
    ("tensors that select", "take", ((4, 6), ("int64", 3)), {"axis": 1}),
    ("joining", "concat", ((4, 6), (2, 6)), {"axis": 0}),
    ("along an axis", "sort", ((4, 6),), {"axis": -1}),
    ("matmul", "matmul", ((4, 6), (6, 8)), {}),
    ("stacks of matrices", "inv", ((4, 6, 6),), {}),
    ("Fourier transforms", "fft", ((4, 6),), {}),
    ("convolution", "conv2d", ((4, 3, 8, 8), (6, 3, 3, 3)), {}),
    ("normalisation", "layer_norm_grad", ((4, 6), (4, 6), (6,)), {}),
    ("a loss", "cross_entropy", ((4, 6), ("int64", 4)), {}),
    ("embedding", "embedding_grad", ((4, 6), ("int64", 4)), {"num_embeddings": 9}),
    ("attention", "scaled_dot_product_attention", ((2, 4, 8), (2, 4, 8), (2, 4, 8)), {}),
    ("data decide the shape", "nonzero", ((4, 6),), {}),
    ("dropout", "dropout", ((4, 6), 3), {"rate": 0.5}),
    ("random values", "uniform", (3,), {"shape": (4, 6)}),
)


def meta_of(operand: Any) -> Meta | type:
    """A shape, perhaps with the dtype in front, or a number."""
    if not isinstance(operand, tuple):
        return type(operand)
    dtype, shape = (operand[0], operand[1:]) if isinstance(operand[0], str) else ("float32", operand)
    return Meta.of(shape, dtype)


def spelt(signature: LayoutSignature) -> str:
    """`split(0), broadcast -> split(0)`, marked if the bits may be others."""

    def listed(atoms: tuple[Atom | None, ...]) -> str:
        return ", ".join("number" if atom is None else repr(atom) for atom in atoms)

    return f"`{listed(signature.inputs)} -> {listed(signature.outputs)}`" + ("" if signature.exact else " ~")


def rows() -> Iterator[str]:
    """A row for each sample; the signature that each op has, everything broadcast, is left out."""
    for family, name, operands, attributes in SAMPLES:
        op = find(name)
        metas: Metas = tuple([meta_of(operand) for operand in operands])
        frozen = op.freeze(attributes)
        call = OpCall(metas, dict(frozen), infer_once(op, metas, frozen))
        given = ", ".join(str(list(meta.shape)) if isinstance(meta, Meta) else "number" for meta in metas)
        shown = "".join(f", {key}={value!r}" for key, value in attributes.items())
        found = [spelt(one) for one in signatures(op, [call], PARTS)[:-1]]
        reason = op.layouts if isinstance(op.layouts, str) else ""
        yield f"| {family} | `{name}({given}{shown})` | {'<br>'.join(found) or f'none: {reason}'} |"


def renewed(page: str) -> str:
    """The page with the table of today."""
    before, _, rest = page.partition(MARK)
    _, _, after = rest.partition("\n\n")
    return (
        "\n".join([before + MARK, "| family | call | without moving anything |", "|---|---|---|", *rows()])
        + f"\n\n{after}"
    )


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
