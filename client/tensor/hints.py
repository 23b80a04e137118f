"""What people who know NumPy, PyTorch, CuPy or JAX type, and what there is in its place.

A missing name raises an AttributeError that says what to write instead. The tables are looked at only when a name is
missing, so they cost nothing. Every entry's left side is a name of another library's; the right side is an expression
that works: of a namespace (`FUNCTIONS`, `EXTENSIONS`), a tensor (`METHODS`), a session, `session.nn`, or the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from ..locations.tracebacks import refusing


def words(text: str) -> tuple[str, ...]:
    """Names between spaces."""
    return tuple(text.split())


# Functions of the namespace of one tensor, of two, and all its other names: tensors and sessions have them there.
UNARY: Final = words(
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil cos cosh count_nonzero diff empty_like exp "
    "expand_dims expm1 flip floor isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose median "
    "negative ones_like positive reciprocal sign signbit sin sinh sqrt square tan tanh tril triu trunc unique_all "
    "unique_counts unique_inverse unique_values unstack zeros_like"
)
BINARY: Final = words(
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal "
    "floor_divide greater greater_equal hypot isin less less_equal logaddexp logical_and logical_or logical_xor "
    "matmul maximum minimum multiply nextafter not_equal pow remainder subtract tensordot vecdot"
)
OTHERS: Final = words(
    "all any arange argmax argmin argsort asarray astype bool broadcast_arrays broadcast_shapes broadcast_to "
    "can_cast clip complex128 complex64 concat conj convolve cumulative_prod cumulative_sum e einsum empty eye fft "
    "finfo float16 float32 float64 from_dlpack full full_like histogram iinfo imag inf int16 int32 int64 int8 "
    "interp isdtype linalg linspace max mean meshgrid min moveaxis nan newaxis nonzero ones pad percentile "
    "permute_dims pi prod quantile real repeat reshape result_type roll round searchsorted sort special split "
    "squeeze stack std sum take take_along_axis tile uint16 uint32 uint64 uint8 var where zeros"
)
NN: Final = words("relu sigmoid silu gelu softmax log_softmax")
DECOMPOSITIONS: Final = words("cholesky det eig eigh eigvals eigvalsh inv matrix_rank pinv qr slogdet svd svdvals")
# What belongs to automatic differentiation.
AUTOGRAD: Final = words(
    "backward detach detach_ enable_grad grad grad_fn is_leaf no_grad requires_grad requires_grad_ retain_grad "
    "value_and_grad vjp"
)
NO_AUTOGRAD: Final = (
    "there is no automatic differentiation: write gradients by hand (session.nn has those of its functions), or take "
    "another library's"
)
# Functions and constants of NumPy's main namespace, and what a namespace has in their place.
FUNCTIONS: Final[Mapping[str, str]] = {
    "absolute": "abs",
    "alltrue": "all",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "argwhere": "nonzero",
    "around": "round",
    "array": "asarray",
    "as_tensor": "asarray",
    "bmm": "matmul",
    "cat": "concat",
    "clamp": "clip",
    "div": "divide",
    "from_numpy": "asarray",
    "gather": "take_along_axis",
    "mm": "matmul",
    "mul": "multiply",
    "neg": "negative",
    "norm": "linalg.vector_norm",
    "sub": "subtract",
    "tensor": "asarray",
    **{name: f"linalg.{name}" for name in DECOMPOSITIONS},
    "array_split": "split",
    "asanyarray": "asarray",
    "ascontiguousarray": "asarray",
    "average": "mean",
    "bitwise_not": "bitwise_invert",
    "bool_": "bool",
    "column_stack": "stack",
    "concatenate": "concat",
    "conjugate": "conj",
    "copy": "asarray",
    "cross": "linalg.cross",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "diag": "linalg.diagonal",
    "diagonal": "linalg.diagonal",
    "dot": "matmul",
    "double": "float64",
    "dsplit": "split",
    "dstack": "concat",
    "ediff1d": "diff",
    "fabs": "abs",
    "fix": "trunc",
    "flatnonzero": "nonzero",
    "fliplr": "flip",
    "flipud": "flip",
    "float_power": "pow",
    "half": "float16",
    "hsplit": "split",
    "hstack": "concat",
    "identity": "eye",
    "in1d": "isin",
    "inner": "vecdot",
    "int_": "int64",
    "intp": "int64",
    "invert": "bitwise_invert",
    "iscomplexobj": "isdtype",
    "isrealobj": "isdtype",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "outer": "linalg.outer",
    "power": "pow",
    "promote_types": "result_type",
    "ravel": "reshape",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "rollaxis": "moveaxis",
    "row_stack": "concat",
    "single": "float32",
    "swapaxes": "moveaxis",
    "trace": "linalg.trace",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "unique": "unique_values",
    "vdot": "vecdot",
    "vsplit": "split",
    "vstack": "concat",
}
# What is not in the namespace, but with the session.
ELSEWHERE: Final[Mapping[str, str]] = {
    **{name: f"session.nn.{name}" for name in NN},
    "nn": "session.nn",
    "rand": "session.random.uniform",
    "randint": "session.random.integers",
    "randn": "session.random.normal",
    "random": "session.random",
}
# Functions of the extensions' namesakes.
EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "linalg": {"multi_dot": "matmul", "norm": "vector_norm or matrix_norm", "tensorsolve": "solve"},
    "fft": {"fft2": "fftn", "ifft2": "ifftn", "irfft2": "irfftn", "rfft2": "rfftn"},
}
# Methods and attributes of NumPy's arrays, and PyTorch's where people look for them: what to write for a tensor x, with
# `xp` its namespace.
METHODS: Final[Mapping[str, str]] = {
    **{name: f"xp.{name}(x)" for name in UNARY},
    **{name: f"xp.{name}(x, y)" for name in BINARY},
    **{name: f"session.nn.{name}(x)" for name in NN},
    **{name: f"xp.linalg.{name}(x)" for name in DECOMPOSITIONS},
    "add_": "x += y",
    "amax": "x.max()",
    "amin": "x.min()",
    "at": "x[index] = value",
    "block_until_ready": "x.wait()",
    "bmm": "x @ y",
    "broadcast_to": "xp.broadcast_to(x, shape)",
    "chunk": "xp.split(x, 2)",
    "clamp": "xp.clip(x, low, high)",
    "compress": "x[mask]",
    "copy_": "x[...] = y",
    "cuda": "x.to_device(device)",
    "data": "x.numpy()",
    "dim": "x.ndim",
    "div": "x / y",
    "div_": "x /= y",
    "double": "x.astype('float64')",
    "element_size": "x.dtype.itemsize",
    "eq": "x == y",
    "expand": "xp.broadcast_to(x, shape)",
    "fill_": "x[...] = value",
    "float": "x.astype('float32')",
    "gather": "xp.take_along_axis(x, indices)",
    "ge": "x >= y",
    "get": "x.numpy()",
    "gt": "x > y",
    "half": "x.astype('float16')",
    "index_select": "xp.take(x, indices, axis=0)",
    "int": "x.astype('int32')",
    "inverse": "xp.linalg.inv(x)",
    "is_cuda": "x.device",
    "le": "x <= y",
    "long": "x.astype('int64')",
    "lt": "x < y",
    "masked_fill": "xp.where(mask, value, x)",
    "masked_select": "x[mask]",
    "mm": "x @ y",
    "moveaxis": "xp.moveaxis(x, 0, 1)",
    "mul": "x * y",
    "mul_": "x *= y",
    "ne": "x != y",
    "neg": "-x",
    "norm": "xp.linalg.vector_norm(x)",
    "numel": "x.size",
    "pin_memory": "x.pin()",
    "put": "x[indices] = value",
    "quantile": "xp.quantile(x, 0.5)",
    "roll": "xp.roll(x, 1)",
    "set": "x[...] = value",
    "split": "xp.split(x, 2)",
    "strides": "x.numpy().strides",
    "sub": "x - y",
    "sub_": "x -= y",
    "t": "x.T",
    "tile": "xp.tile(x, (2, 1))",
    "to": "x.to_device(device) or x.astype(dtype)",
    "topk": "xp.sort(x)",
    "type": "x.astype(dtype)",
    "unbind": "xp.unstack(x)",
    "zero_": "x[...] = 0",
    "argpartition": "xp.argsort(x)",
    "argsort": "xp.argsort(x)",
    "choose": "xp.take(x, indices)",
    "clip": "xp.clip(x, low, high)",
    "clone": "x.copy()",
    "conj": "xp.conj(x)",
    "conjugate": "xp.conj(x)",
    "cpu": "x.to_device('cpu:0')",
    **dict.fromkeys(("cumprod", "cumulative_prod"), "xp.cumulative_prod(x, axis=0)"),
    **dict.fromkeys(("cumsum", "cumulative_sum"), "xp.cumulative_sum(x, axis=0)"),
    "diagonal": "xp.linalg.diagonal(x)",
    "dot": "x @ y",
    "fill": "x[...] = value",
    "flat": "x.reshape(-1)",
    "flatten": "x.reshape(-1)",
    "imag": "xp.imag(x)",
    "itemsize": "x.dtype.itemsize",
    "nonzero": "xp.nonzero(x)",
    "partition": "xp.sort(x)",
    "permute": "x.permute_dims(axes)",
    "ptp": "x.max() - x.min()",
    "ravel": "x.reshape(-1)",
    "real": "xp.real(x)",
    "repeat": "xp.repeat(x, 2)",
    "resize": "x.reshape(shape)",
    "round": "xp.round(x)",
    "searchsorted": "xp.searchsorted(x, values)",
    "sort": "xp.sort(x)",
    "swapaxes": "xp.moveaxis(x, 0, 1)",
    "take": "xp.take(x, indices)",
    "tobytes": "x.numpy().tobytes()",
    "trace": "xp.linalg.trace(x)",
    "transpose": "x.T or x.permute_dims(axes)",
    "unsqueeze": "xp.expand_dims(x, axis=0)",
    "view": "x.reshape(shape) or x.numpy().view(dtype)",
}
# What people look for at a session, and at the module `tensord`.
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
    **{name: f"tensord.array_api.{name}" for name in (*UNARY, *BINARY, *OTHERS)},
    **{name: f"tensord.array_api.{instead}" for name, instead in FUNCTIONS.items()},
    **ELSEWHERE,
    **dict.fromkeys(("compile", "jit"), "tensord.routine"),
    **{name: f"session.{name}" for name in ("devices", "load", "lookup", "publish", "save", "sync")},
}
# Classes of PyTorch's modules, and functions that `session.nn` has not: layers are functions of tensors here.
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
    """The error for a name that `what` does not have. It says what there is instead, if the table knows.

    Otherwise Python looks for a similar name among those of `owner`, and adds it where it prints the error.
    """
    found, message = table.get(name), f"{what} has no attribute {name!r}"
    if name in AUTOGRAD:
        return AttributeError(f"{message}: {NO_AUTOGRAD}", name=None, obj=None)
    if found is None:
        return AttributeError(message, name=name, obj=owner)
    return AttributeError(
        f"{message}; did you mean {' or '.join(map(repr, found.split(' or ')))}?", name=None, obj=None
    )


class Absent:
    """A name that instances do not have: a descriptor that says what to write instead.

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

    ValueError for a name that the class has: a hint would take it away.
    """
    found = {**dict.fromkeys(AUTOGRAD, ""), **table}
    if taken := found.keys() & dir(cls):
        raise ValueError(f"{cls.__name__} has these itself: {', '.join(sorted(taken))}")
    for name, instead in found.items():
        setattr(cls, name, Absent(what, name, instead))


def present(cls: type, names: Iterable[str]) -> list[str]:
    """The names that are no hints."""
    return [name for name in names if type(inspect.getattr_static(cls, name, None)) is not Absent]
