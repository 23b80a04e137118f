"""Functions on dtypes. They read metas only; `astype` alone issues an op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.schema.promotion import promote
from ...interpreter.types import kinds
from ...interpreter.types.meta import Meta, OperandMeta, Scalar
from ..calls.checks import device_of, own
from ..locations.locations import located
from ..tensor.exchange import check_copy
from ..tensor.operators import SCALARS
from ..tensor.tensor import Tensor
from .creation import DType, dtype_name, python_number
from .functions import Functions, argument_error

Resolved: TypeAlias = np.dtype[np.generic]

KINDS: Final = {
    "bool": kinds.BOOLEAN,
    "signed integer": kinds.SIGNED,
    "unsigned integer": kinds.UNSIGNED,
    "integral": kinds.INTEGER,
    "real floating": kinds.REAL_FLOATING,
    "complex floating": kinds.COMPLEX_FLOATING,
    "numeric": kinds.NUMERIC,
}


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a floating-point dtype, as Python numbers; for a complex dtype, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Resolved


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer dtype, as Python numbers."""

    bits: int
    max: int
    min: int
    dtype: Resolved


class DataTypes(Functions):
    """astype, can_cast, finfo, iinfo, isdtype, result_type."""

    def astype(self, x: Tensor, dtype: DType, /, *, copy: bool = True, device: str | None = None) -> Tensor:
        """x with another dtype; with `copy=False`, x itself if it has that dtype (and device) already.

        TypeError for complex to real: take `real` or `imag` first.
        """
        x = own(self._core, x)
        check_copy(copy, "astype")
        same_device = device is None or device_of(self._core, device) == x.device
        if not copy and same_device and x._meta is not None and x.dtype == _dtype(dtype, "astype"):
            return x
        cast = self._call("astype", x, dtype=dtype)
        return cast if same_device or device is None else cast.to_device(device)

    def can_cast(self, from_: DType | Tensor, to: DType, /) -> bool:
        """Does a cast from one dtype to the other keep every value? As `numpy.can_cast`, also across kinds."""
        return np.can_cast(_dtype(from_, "can_cast"), _dtype(to, "can_cast"))

    def finfo(self, type: DType | Tensor, /) -> FloatInfo:  # noqa: A002 - the standard's name
        """Limits of a floating-point dtype, or of a tensor's; TypeError for others."""
        dtype = _of_kind(_dtype(type, "finfo"), kinds.FLOATING, "finfo")
        info = np.finfo(dtype)  # type: ignore[type-var]
        eps, high, low, normal = map(float, (info.eps, info.max, info.min, info.smallest_normal))
        return FloatInfo(int(info.bits), eps, high, low, normal, np.dtype(info.dtype))

    def iinfo(self, type: DType | Tensor, /) -> IntegerInfo:  # noqa: A002 - the standard's name
        """Limits of an integer dtype, or of a tensor's; TypeError for others."""
        dtype = _of_kind(_dtype(type, "iinfo"), kinds.INTEGER, "iinfo")
        info = np.iinfo(dtype)  # type: ignore[type-var]
        return IntegerInfo(int(info.bits), int(info.max), int(info.min), dtype)

    def isdtype(self, dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
        """Is `dtype` equal to `kind`, or of that kind, or of one of several? float16 counts as "real floating"."""
        given = _dtype(dtype, "isdtype")
        return any(_is_of(given, each) for each in (kind if isinstance(kind, tuple) else (kind,)))

    def result_type(self, *arrays_and_dtypes: Tensor | Scalar | DType) -> Resolved:
        """The dtype that tensors, dtypes and Python scalars promote to; TypeError if their kinds do not mix."""
        operands: list[OperandMeta] = [
            type(each) if type(each) in SCALARS else Meta.of((), _dtype(each, "result_type"))
            for each in map(python_number, arrays_and_dtypes)
        ]
        if not any(isinstance(operand, Meta) for operand in operands):
            message = "result_type: at least one argument must be a tensor or a dtype"
            raise located(MetadataTypeError(message, op="result_type"))
        try:
            return promote(operands)
        except TypeError as error:
            raise argument_error("result_type", error) from None


def _dtype(given: Any, function: str) -> Resolved:
    """The dtype of a tensor, or the given dtype; MetadataTypeError if it is none."""
    if isinstance(given, Tensor):
        return given.dtype
    return np.dtype(dtype_name(given, function))


def _of_kind(dtype: Resolved, accepted: kinds.DTypes, function: str) -> Resolved:
    if dtype.name not in accepted:
        message = f"{function} is about {kinds.kind_name(accepted)} dtypes, not {dtype.name}"
        raise located(MetadataTypeError(message, op=function))
    return dtype


def _is_of(dtype: Resolved, kind: DType | str) -> bool:
    if not isinstance(kind, str):
        return dtype == _dtype(kind, "isdtype")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise located(MetadataError(f"isdtype: unknown kind {kind!r}; kinds: {known}", op="isdtype"))
    return dtype.name in KINDS[kind]
