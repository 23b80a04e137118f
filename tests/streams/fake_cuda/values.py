"""NumPy arrays that behave as CuPy's where CuPy's functions differ from NumPy's.

The differences are those of CuPy 14.2, from its sources and from runs on a GPU. The fake's arrays hold such values, and
the tests of kernels call them on such values (`tests/interpreter/ops/elsewhere.py`). A kernel that relies on NumPy's
behaviour fails or gives wrong values on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .gpu import IllegalAddress
from .names import has_loop


class Values(np.ndarray):
    """An array whose functions, methods and operators are CuPy's in place of NumPy's."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        operands, options = plain(inputs), plain(options)
        if method == "__call__" and not has_loop(f"cupy.{ufunc.__name__}", operands):
            kinds = ", ".join(str(getattr(x, "dtype", type(x))) for x in operands)
            raise TypeError(f"Wrong type ({kinds}) of arguments for cupy_{ufunc.__name__}")
        departing = UFUNCS.get(ufunc) if method == "__call__" else None
        if departing is None:
            into = {} if out is None else {"out": plain(out)}
            return like_cupy(getattr(ufunc, method)(*operands, **into, **options))
        found = departing(*operands)
        if out is None:
            return like_cupy(found)
        options.pop("subok", None)
        np.copyto(plain(out[0]), found, **{"casting": "same_kind", **options})
        return out[0]

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        return call(function, *args, **options)

    def __getitem__(self, key: Any) -> Any:
        return like_cupy(plain(self)[plain(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        """CuPy writes in no order: here the first of several values for one element is written last.

        A single mask that selects nothing takes any value. Positions as the only key are made positive in their dtype.
        """
        key, value, whole = plain(key), plain(value), plain(self)
        keys = key if isinstance(key, tuple) else (key,)
        arrays = [(position, each) for position, each in enumerate(keys) if isinstance(each, np.ndarray)]
        if len(arrays) == 1:
            position, only = arrays[0]
            if only.dtype == np.bool_ and not only.any():
                return
            if only.dtype.kind == "i" and only.size and only.min() < 0:
                length = whole.shape[axis_at(keys, position, whole.ndim)]
                if int(only[only < 0].max()) + length > np.iinfo(only.dtype).max:
                    raise IllegalAddress
        if not any(isinstance(each, np.ndarray) and each.dtype.kind in "iu" for each in keys):
            whole[key] = value
            return
        positions = np.arange(whole.size).reshape(whole.shape)[key]
        whole.flat[positions.ravel()[::-1]] = np.broadcast_to(value, positions.shape).ravel()[::-1]

    def fill(self, value: Any) -> None:
        """Any zero is bytes of zero."""
        plain(self).fill(0 if value == 0 and self.flags.c_contiguous else value)

    def min(self, *args: Any, **options: Any) -> Any:
        return call(np.min, self, *args, **options)

    def sum(self, *args: Any, **options: Any) -> Any:
        return call(np.sum, self, *args, **options)

    def prod(self, *args: Any, **options: Any) -> Any:
        return call(np.prod, self, *args, **options)

    def take(self, *args: Any, **options: Any) -> Any:
        return call(np.take, self, *args, **options)

    def clip(self, *args: Any, **options: Any) -> Any:
        return call(np.clip, self, *args, **options)


def axis_at(keys: tuple[Any, ...], position: int, ndim: int) -> int:
    """The axis that the key at that position indexes."""
    consuming = [each is not None and each is not Ellipsis for each in keys]
    if any(each is Ellipsis for each in keys[:position]):
        return ndim - sum(consuming[position:])
    return sum(consuming[:position])


def call(function: Any, *args: Any, **options: Any) -> Any:
    """CuPy's function of that name."""
    if isinstance(function, np.ufunc):
        operands, outs = args[: function.nin], args[function.nin :]
        return function(*map(like_cupy, operands), **({"out": tuple(map(like_cupy, outs))} if outs else {}), **options)
    return like_cupy(FUNCTIONS.get(function, function)(*plain(args), **plain(options)))


def plain(value: Any) -> Any:
    """NumPy's views of the same memory, also in tuples, lists and dictionaries."""
    if isinstance(value, Values):
        return value.view(np.ndarray)
    if type(value) in {tuple, list}:
        return type(value)(map(plain, value))
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def like_cupy(value: Any) -> Any:
    """The reverse of `plain`. NumPy's scalars become arrays without axes."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).view(Values)
    if isinstance(value, tuple | list):
        each = map(like_cupy, value)
        return value._make(each) if hasattr(value, "_make") else type(value)(each)
    return value


def is_complex(*operands: Any) -> bool:
    return any(np.asarray(x).dtype.kind == "c" for x in operands)


# --- ufuncs


def remainder(x: Any, y: Any) -> Any:
    if np.result_type(x, y).kind != "f":
        return np.remainder(x, y)
    return np.subtract(x, np.multiply(np.floor(np.divide(x, y)), y))


def floor_divide(x: Any, y: Any) -> Any:
    return np.floor(np.divide(x, y)) if np.result_type(x, y).kind == "f" else np.floor_divide(x, y)


def divide(x: Any, y: Any) -> Any:
    """Complex quotients by the sum of the divisor's parts, whose reciprocal is flushed to zero when it is subnormal."""
    if not is_complex(x, y):
        return np.divide(x, y)
    dtype = np.result_type(x, y)
    x, y = np.asarray(x, dtype), np.asarray(y, dtype)
    scale = flushed(1 / (np.abs(y.real) + np.abs(y.imag)))
    dividend, divisor = (x.real * scale, x.imag * scale), (y.real * scale, y.imag * scale)
    scale = flushed(1 / (divisor[0] * divisor[0] + divisor[1] * divisor[1]))
    real = (dividend[0] * divisor[0] + dividend[1] * divisor[1]) * scale
    imag = (dividend[1] * divisor[0] - dividend[0] * divisor[1]) * scale
    return joined(real, imag, dtype)


def flushed(x: Any) -> Any:
    """Compiled with -ftz=true, which concerns float32."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.zeros_like(x), x) if x.dtype == np.float32 else x


def joined(real: Any, imag: Any, dtype: Any) -> Any:
    found = np.empty(np.shape(real), dtype)
    found.real, found.imag = real, imag
    return found


def with_undefined(ufunc: np.ufunc, is_undefined: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Complex numbers that are undefined for a ufunc get NaN in both parts."""

    def function(x: Any) -> Any:
        found = ufunc(x)
        return np.where(is_undefined(x), complex(np.nan, np.nan), found).astype(found.dtype) if is_complex(x) else found

    return function


log = with_undefined(np.log, lambda x: np.isinf(x) & np.isnan(x))


def log2(x: Any) -> Any:
    return divide(log(x), np.asarray(np.log(2), np.asarray(x).dtype)) if is_complex(x) else np.log2(x)


def log10(x: Any) -> Any:
    if not is_complex(x):
        return np.log10(x)
    found = log(x)
    return joined(found.real / np.log(10), found.imag / np.log(10), found.dtype)


def log1p(x: Any) -> Any:
    return log(np.add(x, 1 + 0j)) if is_complex(x) else np.log1p(x)


def expm1(x: Any) -> Any:
    return np.subtract(np.exp(x), 1) if is_complex(x) else np.expm1(x)


def reciprocal(x: Any) -> Any:
    return divide(1, x) if is_complex(x) else np.reciprocal(x)


def power(x: Any, y: Any) -> Any:
    """Complex powers by the logarithm alone, also where NumPy multiplies."""
    if not is_complex(x, y):
        return np.power(x, y)
    dtype = np.result_type(x, y)
    x, y = np.asarray(x, dtype), np.asarray(y, dtype)
    ordinary = (x != 0) & np.isfinite(x) & np.isfinite(y)
    return np.where(ordinary, np.exp(y * np.log(x)), np.power(x, y))


def sign(x: Any) -> Any:
    """The sign of a complex number is that of its real part."""
    return np.sign(x.real).astype(x.dtype) if is_complex(x) else np.sign(x)


def nextafter(x: Any, y: Any) -> Any:
    """float16 is computed in float32, whose subnormal results are flushed to zero."""
    dtype = np.nextafter(x, y).dtype
    wide = np.float32 if dtype == np.float16 else dtype
    return flushed(np.nextafter(np.asarray(x, wide), np.asarray(y, wide))).astype(dtype)


def clip_of_numbers(x: Any, low: Any, high: Any) -> Any:
    """Limits that are NaN are left out, and complex ones are refused."""
    if is_complex(x, low, high):
        raise TypeError("Wrong type of arguments for cupy_clip")
    return np.where(np.isnan(x), x, np.fmin(np.fmax(x, low), high))


UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.remainder: remainder,
    np.floor_divide: floor_divide,
    np.divide: divide,
    np.log: log,
    np.log2: log2,
    np.log10: log10,
    np.log1p: log1p,
    np.expm1: expm1,
    np.reciprocal: reciprocal,
    np.power: power,
    np.sign: sign,
    np.nextafter: nextafter,
    np.arccosh: with_undefined(np.arccosh, lambda x: (x.real == 0) & np.isnan(x.imag)),
    np.tanh: with_undefined(np.tanh, lambda x: (x.real == 0) & ~np.isfinite(x.imag)),
    np.tan: with_undefined(np.tan, lambda x: (x.imag == 0) & ~np.isfinite(x.real)),
}


# --- other functions


def minimum_of(x: Any, axis: Any = None, out: Any = None, **options: Any) -> Any:
    """`out` is taken for the dtype."""
    if out is not None:
        raise TypeError("operand type(s) all returned NotImplemented from __array_ufunc__(<ufunc 'equal'>, '__call__'")
    return np.min(x, axis=axis, **options)


def not_as_bool(function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel from complex to bool does not compile."""

    def reduction(x: Any, *args: Any, dtype: Any = None, **options: Any) -> Any:
        if dtype is not None and np.dtype(dtype).kind == "b" and is_complex(x):
            raise RuntimeError('no suitable conversion function from "complex" to "bool" exists')
        return function(x, *args, dtype=dtype, **options)

    return reduction


def take(x: Any, indices: Any, axis: Any = None, out: Any = None) -> Any:
    """An index that is out of bounds wraps around. (NumPy's own wrapping takes one step for each time around.)"""
    size = x.size if axis is None else x.shape[axis]
    return np.take(x, np.remainder(indices, max(size, 1)), axis=axis, out=out, mode="clip")


def clip(x: Any, low: Any = None, high: Any = None, out: Any = None) -> Any:
    found = clip_of_numbers(x, low, high).astype(np.result_type(x, low, high))
    if out is None:
        return found
    np.copyto(out, found)
    return out


def quantile(x: Any, q: Any, *, percent: bool, method: Any = "linear", **options: Any) -> Any:
    """Refused if all of q is out of range; with a part of it, memory of others is read, and the device is lost."""
    q = np.asarray(q / 100 if percent else q)
    inside = (q >= 0) & (q <= 1)
    if not inside.any():
        raise ValueError("Quantiles must be in the range [0, 1]")
    if q.ndim > 1:
        raise ValueError(f"Expected q to have a dimension of 1.\nActual: {q.ndim} != 1")
    if method not in {"lower", "higher", "midpoint", "nearest", "linear"}:
        raise ValueError(f"'{method}' method is not yet supported. Please use any other method.")
    if not inside.all():
        raise IllegalAddress
    return np.quantile(x, q, method=method, **options)


def median(x: Any, axis: Any = None, **options: Any) -> Any:
    if x.ndim == 0 and axis is not None:
        raise np.exceptions.AxisError("Axis overrun")
    return np.median(x, axis=axis, **options)


def histogram(x: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:  # noqa: A002
    """Without weights CUB counts; with weights a kernel that puts NaN into the first bin. Equal bins are fused."""
    x, edges = x.ravel(), fused_edges(x, bins, range) if np.ndim(bins) == 0 else bins
    if edges.size == 1 and weights is not None and not ((x < edges[0]) | (edges[0] < x)).all():
        raise IllegalAddress  # the first bin is written, and there is none
    if weights is None:
        counts = counted_by_cub(x, edges)
    else:
        weights, nan = weights.ravel(), np.isnan(x)
        dtype = np.int64 if weights.dtype.kind in "biu" else np.result_type(weights.dtype, np.float64)
        counts = np.histogram(x[~nan], edges, weights=weights[~nan].astype(dtype))[0].astype(dtype)
        counts[0] += weights[nan].sum(dtype=dtype)
    return (counts / np.diff(edges) / counts.sum() if density else counts), edges


def fused_edges(x: Any, bins: int, limits: Any) -> Any:
    """Each edge is rounded once, after the product and the sum. Edges may be equal."""
    low, high = np.histogram_bin_edges(x, 1, limits)
    exact = np.arange(bins + 1) * np.longdouble((high - low) / bins) + low
    edges = exact.astype(low.dtype)
    edges[-1] = high
    return edges


def counted_by_cub(x: Any, edges: Any) -> Any:
    """int8 is read as uint8. The last edge is moved upwards, which has no effect on a large number."""
    last = edges[-1:] + 1.0 if x.dtype.kind in "iu" else np.nextafter(edges[-1:], edges[-1:] + 1)
    x = x.view(np.uint8) if x.dtype == np.int8 else x
    bins = np.searchsorted(np.append(edges[:-1], last), x, side="right") - 1
    return np.bincount(bins[(bins >= 0) & (bins < edges.size - 1)], minlength=edges.size - 1)


def interp(x: Any, *args: Any, **options: Any) -> Any:
    if not x.flags.c_contiguous:
        raise NotImplementedError("Non-C-contiguous x is currently not supported")
    return np.interp(x, *args, **options)


def linspace(start: Any, stop: Any, num: int = 50, **options: Any) -> Any:
    if is_complex(start, stop):
        raise TypeError("can't convert complex to float")
    return np.linspace(start, stop, num, **options)


def sinc(x: Any) -> Any:
    """1 wherever pi * x is no finite number other than zero."""
    return np.where(np.isfinite(x), np.sinc(x), x.dtype.type(1))


def where(condition: Any, *given: Any) -> Any:
    """The condition is an array: CuPy's AttributeError for anything else."""
    return np.where(condition.astype(bool), *given)


def naming_cusolver(function: Callable[..., Any]) -> Callable[..., Any]:
    """A singular matrix is reported by the name of cuSOLVER's function."""

    def solver(*args: Any) -> Any:
        try:
            return function(*args)
        except np.linalg.LinAlgError:
            raise np.linalg.LinAlgError("Error reported by dgetrf in cuSOLVER. devInfo = [1].") from None

    return solver


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.min: minimum_of,
    np.amin: minimum_of,
    np.sum: not_as_bool(np.sum),
    np.prod: not_as_bool(np.prod),
    np.take: take,
    np.clip: clip,
    np.quantile: lambda x, q, **options: quantile(x, q, percent=False, **options),
    np.percentile: lambda x, q, **options: quantile(x, q, percent=True, **options),
    np.median: median,
    np.histogram: histogram,
    np.interp: interp,
    np.linspace: linspace,
    np.sinc: sinc,
    np.where: where,
    np.linalg.inv: naming_cusolver(np.linalg.inv),
    np.linalg.solve: naming_cusolver(np.linalg.solve),
    np.linalg.matrix_power: naming_cusolver(np.linalg.matrix_power),
}
