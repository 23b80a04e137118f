"""Names and signatures of the standard, revision 2025.12: all are there, exactly, and no others.

array_api_strict has the signatures, except for those in `TEXT`, where it departs from the standard's text. Source:
https://data-apis.org/array-api/2025.12/API_specification/
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest

from tensord.client.tensor.tensor import Tensor

from ..each_case import each_case
from .test_against_strict_data_types import KINDS


def words(text: str) -> set[str]:
    """The names in it."""
    return set(text.split())


FUNCTIONS = words(
    "abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and "
    "bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_shapes "
    "broadcast_to can_cast ceil clip concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff "
    "divide empty empty_like equal exp expand_dims expm1 eye finfo flip floor floor_divide from_dlpack full full_like "
    "greater greater_equal hypot iinfo imag isdtype isfinite isin isinf isnan less less_equal linspace log log10 "
    "log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean "
    "meshgrid min minimum moveaxis multiply negative nextafter nonzero not_equal ones ones_like permute_dims positive "
    "pow prod real reciprocal remainder repeat reshape result_type roll round searchsorted sign signbit sin sinh sort "
    "sqrt square squeeze stack std subtract sum take take_along_axis tan tanh tensordot tile tril triu trunc "
    "unique_all unique_counts unique_inverse unique_values unstack var vecdot where zeros zeros_like"
)
LINALG = words(
    "cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
    "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"
)
FFT = words("fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn")
INFO = words("capabilities default_device default_dtypes devices dtypes")
METHODS = words(
    "__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ "
    "__floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ "
    "__mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ "
    "__iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __ior__ __ipow__ __irshift__ __isub__ "
    "__itruediv__ __ixor__ __radd__ __rand__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ "
    "__rrshift__ __rsub__ __rtruediv__ __rxor__ to_device"
)
PROPERTIES = words("T device dtype mT ndim shape size")
CONSTANTS = {"e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None, "pi": math.pi}
DTYPES = words("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128")
OURS = {"float16"}  # beyond the standard, as are these functions
BEYOND = words("convolve einsum histogram interp median pad percentile quantile split")
BEYOND_LINALG = {"lstsq"}

Parameters = list[tuple[str, Any, Any]]
POSITIONAL, KEYWORD = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
TEXT: dict[str, Parameters] = {
    "expand_dims": [("x", POSITIONAL, inspect.Parameter.empty), ("axis", EITHER, 0)],  # 2024.12 had a default
    "to_device": [("device", POSITIONAL, inspect.Parameter.empty), ("stream", KEYWORD, None)],
}


def parameters(function: Callable[..., Any], *, method: bool = False) -> Parameters:
    """Names, kinds and defaults; array_api_strict's mark of an omitted argument counts as None."""
    found = list(inspect.signature(function).parameters.values())[method:]
    return [(p.name, p.kind, None if repr(p.default).startswith("<Undef") else p.default) for p in found]


@each_case("name", sorted(FUNCTIONS))
def test_signatures_of_functions(name, session):
    expected = TEXT.get(name) or parameters(getattr(array_api_strict, name))
    assert parameters(getattr(session.xp, name)) == expected


@each_case("name", sorted(LINALG))
def test_signatures_of_linear_algebra(name, session):
    assert parameters(getattr(session.xp.linalg, name)) == parameters(getattr(array_api_strict.linalg, name))


@each_case("name", sorted(FFT))
def test_signatures_of_fourier_transforms(name, session):
    assert parameters(getattr(session.xp.fft, name)) == parameters(getattr(array_api_strict.fft, name))


@each_case("name", sorted(INFO))
def test_signatures_of_inspection(name, session):
    ours, strict = (xp.__array_namespace_info__() for xp in (session.xp, array_api_strict))
    assert parameters(getattr(ours, name)) == parameters(getattr(strict, name))


@each_case("name", sorted(METHODS))
def test_signatures_of_methods(name):
    expected = TEXT.get(name) or parameters(getattr(array_api_strict._array_object.Array, name), method=True)
    assert parameters(getattr(Tensor, name), method=True) == expected


@each_case("name", sorted(PROPERTIES))
def test_properties(name):
    assert isinstance(getattr(Tensor, name), property)


@each_case("name", sorted(BEYOND | BEYOND_LINALG))
def test_functions_beyond_the_standard_take_what_numpys_take(name, session):
    """Each of our parameters has its name in NumPy's function, and its position there if it may be positional."""
    linalg = name in BEYOND_LINALG
    mine = parameters(getattr(session.xp.linalg if linalg else session.xp, name))
    theirs = [each[0] for each in parameters(getattr(np.linalg if linalg else np, name))]
    if name == "einsum":
        return  # NumPy's takes anything
    positional = [name for name, kind, _ in mine if kind is not KEYWORD]
    assert positional == theirs[: len(positional)]
    assert {name for name, kind, _ in mine if kind is KEYWORD} <= {*theirs, "constant_values"}


def test_the_namespace_has_the_standards_names_and_those_beyond(session):
    xp = session.xp
    expected = {*FUNCTIONS, *CONSTANTS, *DTYPES, *OURS, *BEYOND, "linalg", "fft", "special"}
    assert set(xp.__all__) == expected
    assert {name for name in dir(xp) if not name.startswith("_")} == expected
    assert all(hasattr(xp, name) for name in dir(xp))
    assert {name for name in dir(xp.linalg) if not name.startswith("_")} == LINALG | BEYOND_LINALG
    assert {name for name in dir(xp.fft) if not name.startswith("_")} == FFT
    assert {name for name in dir(xp.__array_namespace_info__()) if not name.startswith("_")} == INFO


def test_the_default_namespace_has_the_same_names(session):
    from tensord import array_api

    assert set(array_api.__all__) == set(session.xp.__all__)


@each_case("name", CONSTANTS)
def test_constants(name, session):
    np.testing.assert_equal(getattr(session.xp, name), CONSTANTS[name])


@each_case("name", sorted(DTYPES | OURS))
def test_dtypes_are_those_of_tensors(name, session):
    xp = session.xp
    dtype = getattr(xp, name)
    assert xp.zeros(1, dtype=dtype).dtype == dtype == np.dtype(name)
    assert dtype not in {getattr(xp, other) for other in (DTYPES | OURS) - {name}}


def test_versions(session):
    xp = session.xp
    x = xp.ones(1)
    assert xp.__array_api_version__ == "2025.12"
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        assert x.__array_namespace__(api_version=version) is xp
    for version in ("2020.12", "2026.12", "newest", ""):
        with pytest.raises(ValueError, match="array API"):
            x.__array_namespace__(api_version=version)


def test_inspection(session):
    ours, strict = (xp.__array_namespace_info__() for xp in (session.xp, array_api_strict))
    assert ours.capabilities() == strict.capabilities()
    assert ours.devices() == ("cpu:0", "sim:0")
    assert ours.default_device() == session.xp.ones(1).device == "cpu:0"
    for device in (None, *ours.devices()):
        assert ours.default_dtypes(device=device) == {k: d._np_dtype for k, d in strict.default_dtypes().items()}
        assert set(ours.dtypes(device=device)) == DTYPES


@each_case(
    "kind",
    [
        *KINDS,
        ("bool", "integral"),
        ("real floating", "complex floating", "bool"),
        (),
    ],
)
def test_inspection_of_dtypes_by_kind(kind, session):
    ours, strict = (xp.__array_namespace_info__() for xp in (session.xp, array_api_strict))
    assert ours.dtypes(kind=kind) == {name: dtype._np_dtype for name, dtype in strict.dtypes(kind=kind).items()}


def test_inspection_refuses_what_there_is_not(session):
    info = session.xp.__array_namespace_info__()
    with pytest.raises(ValueError, match="unknown kind"):
        info.dtypes(kind="real")
    for ask in (info.dtypes, info.default_dtypes):
        with pytest.raises(ValueError, match="unknown device"):
            ask(device="gpu:7")
