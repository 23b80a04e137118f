"""Names that people know from NumPy, PyTorch, CuPy or JAX, and their replacements.

A missing name raises an AttributeError that names the replacement. The tables are used only when a name is missing, so
they cost nothing. Each maps names of other libraries to expressions that work: of a namespace (`FUNCTIONS`,
`EXTENSIONS`), a tensor (`METHODS`), a session, `session.nn`, or the module. If several names have one replacement, the
expression comes first (`instead_of`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from ..locations.tracebacks import refusing


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def instead_of(table: Mapping[str, str]) -> dict[str, str]:
    """The expression for each of the names that people look for."""
    return {name: instead for instead, names in table.items() for name in words(names)}


# Functions of the namespace with one tensor, with two, and its other names: tensors and sessions refer to them.
UNARY: Final = words(
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh count_nonzero diff empty_like exp "
    "expand_dims expm1 flip floor imag isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose median "
    "negative nonzero ones_like positive real reciprocal round sign signbit sin sinh sqrt square tan tanh tril triu "
    "trunc unique_all unique_counts unique_inverse unique_values unstack zeros_like"
)
BINARY: Final = words(
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot isin less less_equal logaddexp logical_and logical_or logical_xor "
    "matmul maximum minimum multiply nextafter not_equal pow remainder subtract tensordot vecdot"
)
OTHERS: Final = words(
    "all any arange argmax argmin argsort asarray astype bool broadcast_arrays broadcast_shapes broadcast_to "
    "can_cast clip complex128 complex64 concat convolve cumulative_prod cumulative_sum e einsum empty eye fft "
    "finfo float16 float32 float64 from_dlpack full full_like histogram iinfo inf int16 int32 int64 int8 "
    "interp isdtype linalg linspace max mean meshgrid min moveaxis nan newaxis ones pad percentile "
    "permute_dims pi prod quantile repeat reshape result_type roll searchsorted sort special split "
    "squeeze stack std sum take take_along_axis tile uint16 uint32 uint64 uint8 var where zeros"
)
NN: Final = words("relu sigmoid silu gelu softmax log_softmax")
DECOMPOSITIONS: Final = words("cholesky det eig eigh eigvals eigvalsh inv matrix_rank pinv qr slogdet svd svdvals")
# Names of automatic differentiation.
AUTOGRAD: Final = words(
    "backward detach detach_ enable_grad grad grad_fn is_leaf no_grad requires_grad requires_grad_ retain_grad "
    "value_and_grad vjp"
)
NO_AUTOGRAD: Final = (
    "tensord has no automatic differentiation: write gradients by hand (session.nn has the gradients of its "
    "functions), or use another library"
)
# Functions and constants of NumPy's main namespace, and their replacements in a namespace.
FUNCTIONS: Final[Mapping[str, str]] = {
    **{name: f"linalg.{name}" for name in DECOMPOSITIONS},
    **instead_of(
        {
            "abs": "absolute fabs",
            "all": "alltrue",
            "max": "amax",
            "min": "amin",
            "acos": "arccos",
            "acosh": "arccosh",
            "asin": "arcsin",
            "asinh": "arcsinh",
            "atan": "arctan",
            "atan2": "arctan2",
            "atanh": "arctanh",
            "nonzero": "argwhere flatnonzero",
            "round": "around rint",
            "asarray": "array as_tensor asanyarray ascontiguousarray copy from_numpy tensor",
            "split": "array_split dsplit hsplit vsplit",
            "mean": "average",
            "bitwise_invert": "bitwise_not invert",
            "matmul": "bmm dot mm",
            "bool": "bool_",
            "concat": "cat concatenate dstack hstack row_stack vstack",
            "clip": "clamp",
            "stack": "column_stack",
            "conj": "conjugate",
            "linalg.cross": "cross",
            "cumulative_prod": "cumprod",
            "cumulative_sum": "cumsum",
            "linalg.diagonal": "diag diagonal",
            "divide": "div true_divide",
            "float64": "double",
            "diff": "ediff1d",
            "trunc": "fix",
            "flip": "fliplr flipud",
            "pow": "float_power power",
            "take_along_axis": "gather",
            "float16": "half",
            "eye": "identity",
            "isin": "in1d",
            "vecdot": "inner vdot",
            "int64": "int_ intp",
            "isdtype": "iscomplexobj isrealobj",
            "bitwise_left_shift": "left_shift",
            "remainder": "mod",
            "multiply": "mul",
            "negative": "neg",
            "linalg.vector_norm": "norm",
            "linalg.outer": "outer",
            "result_type": "promote_types",
            "reshape": "ravel",
            "bitwise_right_shift": "right_shift",
            "moveaxis": "rollaxis swapaxes",
            "float32": "single",
            "subtract": "sub",
            "linalg.trace": "trace",
            "permute_dims": "transpose",
            "unique_values": "unique",
        }
    ),
}
# Names that the session has instead of the namespace.
ELSEWHERE: Final[Mapping[str, str]] = {
    **{name: f"session.nn.{name}" for name in NN},
    "nn": "session.nn",
    "rand": "session.random.uniform",
    "randint": "session.random.integers",
    "randn": "session.random.normal",
    "random": "session.random",
}
# Functions of the extensions' counterparts.
EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "linalg": {"multi_dot": "matmul", "norm": "vector_norm or matrix_norm", "tensorsolve": "solve"},
    "fft": {"fft2": "fftn", "ifft2": "ifftn", "irfft2": "irfftn", "rfft2": "rfftn"},
}
# Methods and attributes of arrays of NumPy and PyTorch, with the replacement for a tensor x, with `xp` its namespace.
METHODS: Final[Mapping[str, str]] = {
    **{name: f"xp.{name}(x)" for name in UNARY},
    **{name: f"xp.{name}(x, y)" for name in BINARY},
    **{name: f"session.nn.{name}(x)" for name in NN},
    **{name: f"xp.linalg.{name}(x)" for name in DECOMPOSITIONS},
    **instead_of(
        {
            "x += y": "add_",
            "x.max()": "amax",
            "x.min()": "amin",
            "xp.argsort(x)": "argpartition argsort",
            "x[index] = value": "at",
            "x.wait()": "block_until_ready",
            "x @ y": "bmm dot mm",
            "xp.broadcast_to(x, shape)": "broadcast_to expand",
            "xp.take(x, indices)": "choose take",
            "xp.split(x, 2)": "chunk split",
            "xp.clip(x, low, high)": "clamp clip",
            "x.copy()": "clone",
            "x[mask]": "compress masked_select",
            "xp.conj(x)": "conjugate",
            "x[...] = y": "copy_",
            "x.to_device('cpu:0')": "cpu",
            "x.to_device(device)": "cuda",
            "xp.cumulative_prod(x, axis=0)": "cumprod cumulative_prod",
            "xp.cumulative_sum(x, axis=0)": "cumsum cumulative_sum",
            "x.numpy()": "data get",
            "xp.linalg.diagonal(x)": "diagonal",
            "x.ndim": "dim",
            "x / y": "div",
            "x /= y": "div_",
            "x.astype('float64')": "double",
            "x.dtype.itemsize": "element_size itemsize",
            "x == y": "eq",
            "x[...] = value": "fill fill_ set",
            "x.reshape(-1)": "flat flatten ravel",
            "x.astype('float32')": "float",
            "xp.take_along_axis(x, indices)": "gather",
            "x >= y": "ge",
            "x > y": "gt",
            "x.astype('float16')": "half",
            "xp.take(x, indices, axis=0)": "index_select",
            "x.astype('int32')": "int",
            "xp.linalg.inv(x)": "inverse",
            "x.device": "is_cuda",
            "x <= y": "le",
            "x.astype('int64')": "long",
            "x < y": "lt",
            "xp.where(mask, value, x)": "masked_fill",
            "xp.moveaxis(x, 0, 1)": "moveaxis swapaxes",
            "x * y": "mul",
            "x *= y": "mul_",
            "x != y": "ne",
            "-x": "neg",
            "xp.linalg.vector_norm(x)": "norm",
            "x.size": "numel",
            "xp.sort(x)": "partition sort topk",
            "x.permute_dims(axes)": "permute",
            "x.pin()": "pin_memory",
            "x.max() - x.min()": "ptp",
            "x[indices] = value": "put",
            "xp.quantile(x, 0.5)": "quantile",
            "xp.repeat(x, 2)": "repeat",
            "x.reshape(shape)": "resize",
            "xp.roll(x, 1)": "roll",
            "xp.searchsorted(x, values)": "searchsorted",
            "x.numpy().strides": "strides",
            "x - y": "sub",
            "x -= y": "sub_",
            "x.T": "t",
            "xp.tile(x, (2, 1))": "tile",
            "x.to_device(device) or x.astype(dtype)": "to",
            "x.numpy().tobytes()": "tobytes",
            "xp.linalg.trace(x)": "trace",
            "x.T or x.permute_dims(axes)": "transpose",
            "x.astype(dtype)": "type",
            "xp.unstack(x)": "unbind",
            "xp.expand_dims(x, axis=0)": "unsqueeze",
            "x.reshape(shape) or x.numpy().view(dtype)": "view",
            "x[...] = 0": "zero_",
        }
    ),
}
# Names that people look for at a session, and at the module `tensord`.
SESSION: Final[Mapping[str, str]] = {
    **{name: f"session.xp.{name}" for name in (*UNARY, *BINARY, *OTHERS) if name not in ("asarray", "repeat")},
    **{name: f"session.xp.{instead}" for name, instead in FUNCTIONS.items() if name != "trace"},
    **{name: instead for name, instead in ELSEWHERE.items() if name not in ("nn", "random")},
    **dict.fromkeys(("array", "as_tensor", "from_numpy", "tensor"), "session.asarray"),
    **dict.fromkeys(("compile", "jit"), "session.routine"),
    **dict.fromkeys(("synchronize", "wait"), "session.sync"),
    "device": "session.devices",
    "get": "session.lookup",
    "put": "session.publish",
    "run": "session.routine",
}
MODULE: Final[Mapping[str, str]] = {
    **{name: f"tensord.array_api.{name}" for name in (*UNARY, *BINARY, *OTHERS) if name != "split"},  # a layout
    **{name: f"tensord.array_api.{instead}" for name, instead in FUNCTIONS.items()},
    **ELSEWHERE,
    **dict.fromkeys(("compile", "jit"), "tensord.routine"),
    **{name: f"session.{name}" for name in ("load", "lookup", "publish", "save", "sync")},
}
# Classes of PyTorch's modules, and functions that `session.nn` lacks: layers are functions of tensors here.
LAYERS: Final[Mapping[str, str]] = {
    "AvgPool2d": "session.nn.avg_pool2d",
    "Conv2d": "session.nn.conv2d",
    "CrossEntropyLoss": "session.nn.cross_entropy",
    "Dropout": "session.nn.dropout",
    "Embedding": "session.nn.embedding",
    "GELU": "session.nn.gelu",
    "LayerNorm": "session.nn.layer_norm",
    "Linear": "x @ w + b",
    "LogSoftmax": "session.nn.log_softmax",
    "MaxPool2d": "session.nn.max_pool2d",
    "RMSNorm": "session.nn.rms_norm",
    "ReLU": "session.nn.relu",
    "SiLU": "session.nn.silu",
    "Sigmoid": "session.nn.sigmoid",
    "Softmax": "session.nn.softmax",
    "Tanh": "session.xp.tanh",
    "attention": "session.nn.scaled_dot_product_attention",
    "functional": "session.nn",
    "linear": "x @ w + b",
    "tanh": "session.xp.tanh",
}


def missing(what: str, name: str, table: Mapping[str, str], owner: object) -> AttributeError:
    """The error for a name that `what` does not have, with the replacement if the table has one.

    Otherwise Python looks for a similar name among those of `owner`, and adds it where it prints the error.
    """
    replacement, message = table.get(name), f"{what} has no attribute {name!r}"
    if name in AUTOGRAD:
        return AttributeError(f"{message}: {NO_AUTOGRAD}", name=None, obj=None)
    if replacement is None:
        return AttributeError(message, name=name, obj=owner)
    return AttributeError(
        f"{message}; did you mean {' or '.join(map(repr, replacement.split(' or ')))}?", name=None, obj=None
    )


class Absent:
    """A name that instances do not have: a descriptor whose error names the replacement.

    A `__getattr__` of the class would slow down every access to every attribute.
    """

    __slots__ = ("_message",)

    def __init__(self, what: str, name: str, instead: str) -> None:
        note = " (xp is session.xp)" if instead.startswith("xp.") else ""
        hint = f"; did you mean {instead}?{note}" if instead else f": {NO_AUTOGRAD}"
        self._message = f"{what} has no attribute {name!r}{hint}"

    @refusing
    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(self._message)


def add_hints(cls: type, what: str, table: Mapping[str, str]) -> None:
    """Give a class a hint for each name of the table, and for those of automatic differentiation.

    ValueError for a name that the class has: the hint would hide it.
    """
    hints = {**dict.fromkeys(AUTOGRAD, ""), **table}
    if taken := hints.keys() & dir(cls):
        raise ValueError(f"{cls.__name__} has these itself: {', '.join(sorted(taken))}")
    for name, instead in hints.items():
        setattr(cls, name, Absent(what, name, instead))


def present(cls: type, names: Iterable[str]) -> list[str]:
    """The names without hints."""
    return [name for name in names if type(inspect.getattr_static(cls, name, None)) is not Absent]
