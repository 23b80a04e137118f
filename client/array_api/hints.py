"""What NumPy, and people, call functions that the standard has under another name.

A missing name raises an AttributeError that says what to write instead. The tables are looked at only when a name is
missing, so they cost nothing. Every entry's left side is a name of NumPy's; the right side is an expression that works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from ..tracebacks import refusing

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
# Functions of the extensions' namesakes.
EXTENSIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "linalg": {"multi_dot": "matmul", "norm": "vector_norm or matrix_norm", "tensorsolve": "solve"},
    "fft": {"fft2": "fftn", "ifft2": "ifftn", "irfft2": "irfftn", "rfft2": "rfftn"},
}
# Methods and attributes of NumPy's arrays, and PyTorch's where people look for them: what to write for a tensor x, with
# `xp` its namespace.
METHODS: Final[Mapping[str, str]] = {
    "argpartition": "xp.argsort(x)",
    "argsort": "xp.argsort(x)",
    "choose": "xp.take(x, indices)",
    "clip": "xp.clip(x, low, high)",
    "clone": "x.copy()",
    "conj": "xp.conj(x)",
    "conjugate": "xp.conj(x)",
    "cpu": "x.to_device('cpu:0')",
    "cumprod": "xp.cumulative_prod(x, axis=0)",
    "cumsum": "xp.cumulative_sum(x, axis=0)",
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
    "view": "x.astype(dtype)",
}


def missing(what: str, name: str, table: Mapping[str, str], owner: object) -> AttributeError:
    """The error for a name that `what` does not have. It says what there is instead, if the table knows.

    Otherwise Python looks for a similar name among those of `owner`, and adds it where it prints the error.
    """
    found, message = table.get(name), f"{what} has no attribute {name!r}"
    if found is None:
        return AttributeError(message, name=name, obj=owner)
    return AttributeError(
        f"{message}; did you mean {' or '.join(map(repr, found.split(' or ')))}?", name=None, obj=None
    )


class Absent:
    """A method of NumPy's arrays that tensors do not have: a descriptor that says what to write instead.

    A `__getattr__` of the class would slow down every access to every attribute.
    """

    __slots__ = ("_message",)

    def __init__(self, name: str, instead: str) -> None:
        note = " (xp is session.xp)" if "xp." in instead else ""
        self._message = f"a tensor has no attribute {name!r}; did you mean {instead}?{note}"

    @refusing
    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(self._message)


ABSENT: Final = {name: Absent(name, instead) for name, instead in METHODS.items()}
