"""The `fft` extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..each_case import each_case
from .arrays import ALL, COMPLEX, FLOATING, REAL_FLOATING, arrays, axes_of, axis_of, rarely, reduced_axes, shapes, some
from .calls import DEVICE, Call
from .judge import Entry

norms = st.sampled_from(["backward", "ortho", "forward"])
lengths = st.integers(1, 6)
devices = st.just(DEVICE)


@st.composite
def signal(draw: Any, dtypes: tuple[str, ...]) -> np.ndarray:
    """Few axes, and rarely an empty one; rarely of another dtype."""
    sizes = st.integers(0 if draw(rarely) else 1, 4)
    shape = tuple(draw(st.lists(sizes, min_size=0 if draw(rarely) else 1, max_size=3)))
    return draw(arrays(ALL if draw(rarely) else dtypes, shape))


@st.composite
def along_one(draw: Any, dtypes: tuple[str, ...]) -> Call:
    if draw(rarely):
        return Call((draw(arrays(dtypes, (2,))),), draw(st.sampled_from([{"norm": "none"}, {"n": 0}, {"n": -1}])))
    x = draw(signal(dtypes))
    if 0 in x.shape:
        return Call((x,), draw(some(norm=norms)))
    return Call((x,), draw(some(n=st.none() | lengths, axis=axis_of(x.ndim), norm=norms)))


@st.composite
def along_several(draw: Any, dtypes: tuple[str, ...]) -> Call:
    if draw(rarely):
        return Call((draw(arrays(dtypes, (2,))),), {"norm": "none"})
    x = draw(signal(dtypes))
    axes = draw(axes_of(x.ndim))
    if 0 in x.shape or draw(st.integers(0, 3)) == 0:
        return Call((x,), draw(some(norm=norms)))
    kwargs = {"axes": list(axes) if draw(st.booleans()) else axes, **draw(some(norm=norms))}
    if draw(st.booleans()):
        sizes = [draw(lengths | st.just(-1)) for _ in axes[1:]]
        kwargs["s"] = [*sizes, *[draw(lengths) for _ in axes[:1]], *[2] * (draw(rarely) and bool(axes))]
    return Call((x,), kwargs)


def twice(made: Call) -> Exception | None:
    """The standard leaves open what a repeated axis means; a 0-d tensor has no axes."""
    x, axes = made.args[0], made.kwargs.get("axes")
    if isinstance(axes, int) or axes is None:
        return None
    if x.ndim and len({axis % x.ndim for axis in axes}) < len(axes):
        return ValueError("an axis twice")
    return None


def no_axes(made: Call) -> Exception | None:
    """Along which axis would a real signal be transformed?"""
    axes = made.kwargs.get("axes")
    if (axes is not None and not len(axes)) or (axes is None and made.args[0].ndim == 0):
        return ValueError("no axis")
    return twice(made)


def of_floats(function: Callable[..., Any], *, several: bool) -> Callable[..., Any]:
    """NumPy's function, for floats alone, and for half precision as for single precision."""

    def transform(x: np.ndarray, **kwargs: Any) -> Any:
        if x.dtype.kind not in "fc":
            raise TypeError("not of floats")
        if several and not len(kwargs.get("axes", x.shape)):
            return x.astype(np.result_type(x.dtype, np.complex64))
        return function(x.astype(np.float32) if x.dtype == np.float16 else x, **kwargs)

    return transform


def transform(name: str) -> Entry:
    real = name.removesuffix("n") in {"rfft", "ihfft"}
    half = real or name.startswith(("irfft", "hfft"))
    dtypes = REAL_FLOATING if real else (*COMPLEX, *COMPLEX, *FLOATING)
    calls = along_several(dtypes) if name.endswith("n") else along_one(dtypes)
    options: dict[str, Any] = {"forbids": (no_axes if half else twice)} if name.endswith("n") else {}
    return Entry(calls, numpy=of_floats(getattr(np.fft, name), several=name.endswith("n")), ulps=32, **options)


@st.composite
def frequencies(draw: Any) -> Call:
    """For some points, rarely for none; the dtype is one of floats, rarely another."""
    count = draw(st.integers(-1, 0) if draw(rarely) else st.integers(1, 9))
    dtype = st.none() | st.sampled_from(ALL if draw(rarely) else REAL_FLOATING).map(np.dtype)
    distance = st.sampled_from([1, 0.5, 2.0, -0.1])
    return Call((count,), draw(some(d=distance, dtype=dtype, device=devices)))


def no_points(made: Call) -> Exception | None:
    """Frequencies need at least one point."""
    return ValueError("no points") if made.args[0] < 1 else None


def with_dtype(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """NumPy's function, which knows no dtype. TypeError unless it is one of real floats."""

    def of_dtype(n: int, *, d: float = 1.0, dtype: Any = None, device: None = None) -> np.ndarray:
        if dtype is not None and dtype.kind != "f":
            raise TypeError("frequencies are real floats")
        return function(n, d, device).astype(dtype or np.float64)

    return of_dtype


@st.composite
def shifted(draw: Any) -> Call:
    """NumPy cannot shift along no axes at all."""
    x = draw(arrays(shape=shapes(1)))
    return Call((x,), draw(some(axes=reduced_axes(x.ndim).filter(lambda axes: axes != ()))))


TRANSFORMS = "fft fftn hfft ifft ifftn ihfft irfft irfftn rfft rfftn"
FFT = {
    **{f"fft.{name}": transform(name) for name in TRANSFORMS.split()},
    "fft.fftfreq": Entry(frequencies(), forbids=no_points, numpy=with_dtype(np.fft.fftfreq)),
    "fft.fftshift": Entry(shifted(), forbids=twice),
    "fft.ifftshift": Entry(shifted(), forbids=twice),
    "fft.rfftfreq": Entry(frequencies(), forbids=no_points, numpy=with_dtype(np.fft.rfftfreq)),
}


@each_case("name", FFT)
def test_fft(name, conforms):
    conforms(name, FFT[name])
