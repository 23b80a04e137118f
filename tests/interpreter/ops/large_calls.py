"""One or more calls of every op, on tensors so large that its temporaries matter."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.schema.opdef import REGISTRY

SIDE = 384
COUNT = SIDE * SIDE  # elements of a tensor: 1.1 MiB of float64
I1, I8, H, F, D, C, B = "int8", "int64", "float16", "float32", "float64", "complex128", "bool"
RANDOM = np.random.default_rng(0)


class Case(NamedTuple):
    """One call. `traced`: whether NumPy allocates all its temporaries, so that tracemalloc sees them."""

    op: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    traced: bool = True


def some(dtype: str, *shape: int) -> np.ndarray:
    """Ordinary numbers: floats in (0, 1), integers below 100."""
    return drawn(dtype, shape or (SIDE, SIDE))


@cache
def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A cached array of that dtype and shape: no call writes to its operands, and drawing them takes time."""
    if np.dtype(dtype).kind in "biu":
        return RANDOM.integers(0, 2 if dtype == B else 100, shape).astype(dtype)
    values = RANDOM.random(shape) * 0.8 + 0.1
    return (values + 1j * RANDOM.random(shape) if dtype == C else values).astype(dtype)


def strided(operand: Any) -> Any:
    """The same values in an array that is not packed."""
    if not isinstance(operand, np.ndarray) or operand.ndim == 0:
        return operand
    spread = np.empty((*operand.shape[:-1], 2 * operand.shape[-1]), operand.dtype)[..., ::2]
    spread[...] = operand
    return spread


def calls(names: str, *operands: Any, traced: bool = True, **attributes: Any) -> Iterator[Case]:
    for name in names.split():
        yield Case(name, operands, attributes, traced)


def of_one_tensor(dtype: str) -> Iterator[Case]:
    x = some(dtype)
    for axis in (None, 0, 1):
        yield from calls("sum prod mean var std count_nonzero any all max min argmax argmin median", x, axis=axis)
    yield from calls("var std vector_norm", x.astype(C)) if dtype == D else ()
    yield from calls("sort argsort", x, axis=0)
    yield from calls("sort argsort", x, descending=True)
    yield from calls("sort argsort", x.reshape(-1), traced=False)
    yield from calls("cumulative_sum cumulative_prod", x, axis=0)
    yield from calls("diff", x, n=3)
    yield from calls("diff", x, x, prepend=True)
    yield from calls("unique_values unique_all unique_counts unique_inverse nonzero", x)
    yield from calls("roll", x, shift=3)
    yield from calls("fftshift ifftshift tril triu real imag trace zeros_like ones_like empty_like", x)
    yield from calls("full_like", x, 1)
    yield from calls("astype cast", x, dtype="complex64")
    yield from calls("repeat", x, repeats=2)
    yield from calls("tile", x, repetitions=(2, 1))
    yield from calls("histogram", x.reshape(-1), bins=10)
    yield from calls("quantile", x, 0.3)
    yield from calls("percentile", x, 30.0, axis=0)
    yield from calls("quantile", x, np.array([0.1, 0.9]), axis=1, method="nearest")
    yield from calls("permute", x, 3)
    yield from calls("interp", x, np.arange(10.0), np.arange(10.0))
    yield from calls("flip transpose matrix_transpose diagonal", x)
    yield from calls("permute_dims", x, axes=(1, 0))
    yield from calls("broadcast_to", x, shape=(2, *x.shape))
    yield from calls("expand_dims", x, axis=0)
    yield from calls("squeeze", x[None], axis=0)
    yield from calls("moveaxis", x, source=0, destination=1)
    yield from calls("reshape", x, shape=(-1,))
    yield from calls("getitem", x, index=(("slice", 0, 200, 2),))


def of_several() -> Iterator[Case]:
    x, positions, mask = some(D), some(I8, 300), some(B)
    yield from calls("concat stack isin vecdot", x, x)
    yield from calls("vecdot", x.astype(C), x.astype(C))
    yield from calls("isin", some(I1), some(I1))
    yield from calls("where", mask, x, x)
    yield from calls("clip", x, 0.2, 0.7)
    yield from calls("matmul", x, x)
    yield from calls("matmul", x, some(F))
    yield from calls("tensordot", some(D, 16, 16, 576), some(D, 16, 16, 576), axes=((1, 2), (0, 2)))
    yield from calls("einsum", x, x, subscripts="ij,kj->ik")
    yield from calls("einsum", x, some(F), x, subscripts="ij,jk,kl->il")
    yield from calls("outer", some(D, SIDE), some(D, SIDE))
    yield from calls("cross", some(D, COUNT // 3, 3), some(D, COUNT // 3, 3))
    yield from calls("convolve", x.reshape(-1), some(D, 8))
    yield from calls("take", x, positions, axis=1)
    yield from calls("take_along_axis", x, some(I8), axis=1)
    yield from calls("advanced_getitem", x, positions, index=("tensor",))
    yield from calls("advanced_setitem", x, some(D, 300, SIDE), positions, index=("tensor",))
    yield from calls("advanced_setitem", x, 1, mask, index=("tensor",))
    yield from calls("dynamic_getitem", x, mask, index=("tensor",))
    yield from calls("dynamic_getitem", some(D, SIDE, SIDE, 2), mask, index=("tensor",))
    yield from calls("masked_select", some(D, SIDE, SIDE, 2), mask)
    yield from calls("setitem", x, 1, index=(("slice", 0, 20, None),))
    yield from calls("overwrite", some(F), index=("...",), shape=(SIDE, SIDE), dtype=D)
    yield from calls("overwrite", 1, index=("...",), shape=(SIDE, SIDE), dtype=D)
    yield from calls("repeat_each", x, np.ones(SIDE, np.int64), axis=0)
    yield from calls("searchsorted", np.arange(float(COUNT)), some(F, COUNT), np.arange(COUNT))
    yield from calls("histogram", some(D, COUNT), np.linspace(0, 1, 20), some(D, COUNT), bins=None, weighted=True)
    yield from calls("histogram", some(D, COUNT), bins=COUNT, density=True)
    yield from calls("interp", some(D, COUNT), np.arange(float(COUNT)), some(F, COUNT), period=3.0)


def of_none() -> Iterator[Case]:
    for dtype in (H, D):
        yield from calls("zeros ones empty", shape=(COUNT,), dtype=dtype)
        yield from calls("full uniform normal", 1, shape=(COUNT,), dtype=dtype)
        yield from calls("linspace", start=0, stop=1, num=COUNT, dtype=dtype)
        yield from calls("fftfreq rfftfreq", n=COUNT, dtype=dtype)
    yield from calls("arange", start=0, stop=COUNT)
    yield from calls("eye", n_rows=SIDE)
    yield from calls("bernoulli", 1, shape=(COUNT,))
    yield from calls("integers", 1, shape=(COUNT,), low=0, high=100)
    yield from calls("permutation", 1, n=COUNT)


def of_transforms(dtype: str) -> Iterator[Case]:
    x = some(dtype)
    yield from calls("fft ifft hfft irfft fftn ifftn irfftn", x)
    yield from calls("fft", x, n=1000)
    yield from calls("rfft ihfft rfftn", x) if dtype != C else ()
    for order in (0.0, 1.0, 2.0, 3.0, "inf"):
        yield from calls("vector_norm", x, ord=order, axis=1)
    for order in (1.0, "fro", "inf"):
        yield from calls("matrix_norm", x, ord=order)


def of_networks(dtype: str) -> Iterator[Case]:
    x, labels, row = some(dtype), some(I8, SIDE), some(dtype, SIDE)
    yield from calls("gelu", x, approximate="none")
    yield from calls("gelu_grad", x, x, approximate="none")
    yield from calls("layer_norm rms_norm", x, row)
    yield from calls("layer_norm_grad rms_norm_grad", x, x, row)
    yield from calls("cross_entropy cross_entropy_grad", x, labels)
    yield from calls("one_hot", labels, num_classes=SIDE, dtype=dtype)
    yield from calls("dropout", x, 3, rate=0.5)
    yield from calls("embedding", some(I8, 500), x)
    yield from calls("embedding_grad", some(dtype, 500, SIDE), some(I8, 500), num_embeddings=256)
    images, half, filters = some(dtype, 8, 8, 48, 48), some(dtype, 8, 8, 24, 24), some(dtype, 8, 8, 3, 3)
    yield from calls("avg_pool2d max_pool2d", images, kernel_size=(2, 2))
    yield from calls("avg_pool2d max_pool2d", images, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    yield from calls("avg_pool2d_grad max_pool2d_grad", half, images, kernel_size=(2, 2))
    yield from calls(
        "avg_pool2d_grad max_pool2d_grad", images, images, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)
    )
    yield from calls("conv2d", images, filters, padding=(1, 1))
    yield from calls("conv2d_grad", images, images, filters, padding=(1, 1))
    q, mask = some(dtype, 16, 160, 64), some(B, 160, 160)
    yield from calls("scaled_dot_product_attention", q, q, q, mask, is_causal=True)
    yield from calls("scaled_dot_product_attention_grad", q, q, q, q)


def of_matrices(dtype: str) -> Iterator[Case]:
    """Ops on matrices. LAPACK's workspace cannot be traced."""
    x, tall = well(dtype, 128), some(dtype, 1024, 48)
    stack = np.stack([well(dtype, 48)] * 64)
    for each in (x, stack):
        yield from calls("cholesky", spd(each), upper=True, traced=False)
        yield from calls("qr svd svdvals det slogdet inv eigh eigvalsh pinv matrix_rank", each, traced=False)
    yield from calls("eig eigvals", well(dtype, 96), traced=False)
    yield from calls("qr", tall, mode="complete", traced=False)
    yield from calls("svd", tall, full_matrices=False, traced=False)
    yield from calls("solve", x, some(dtype, 64, 128, 8), traced=False)
    yield from calls("lstsq", tall, some(dtype, 1024, 32), traced=False)
    yield from calls("lstsq_residuals", tall, some(dtype, 1024, 128), some(dtype, 48, 128), np.array(48))
    for n in (5, -3):
        yield from calls("matrix_power", x, n=n, traced=False)
    yield from calls("matrix_norm", x, ord="nuc", traced=False)


def well(dtype: str, n: int) -> np.ndarray:
    """A matrix that has an inverse."""
    return (some(dtype, n, n) + n * np.eye(n)).astype(dtype)


def spd(x: np.ndarray) -> np.ndarray:
    """Positive definite matrices."""
    return (x @ x.swapaxes(-1, -2).conj()).astype(x.dtype)


def every_case() -> list[Case]:
    """All of these calls, and for other ops, calls on tensors of one shape in two dtypes."""
    found = [*of_one_tensor(I1), *of_one_tensor(D), *of_several(), *of_none()]
    for dtype in (H, F):
        found += of_networks(dtype)
    for dtype in (F, D, C):
        found += of_transforms(dtype)
    found += of_matrices(D)
    missing = REGISTRY.keys() - {case.op for case in found}
    for position, name in enumerate(sorted(missing)):
        op = REGISTRY[name]
        if op.library is not None:  # slow, with temporaries of many times the operand
            found += calls(name, *[some(D, 96, 96)] * op.inputs)
            continue
        usual = D if D in op.dtypes[0] else I1
        for dtype in (usual, (I1, H, C)[position % 3]):
            found += calls(name, *[some(dtype)] * max(op.inputs, op.least))
    return found
