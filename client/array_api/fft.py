"""The extension `fft`. The dtype of a result has the precision of x; float16 counts as float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from ..calls.by_name import call
from ..tensor.tensor import Tensor
from .functions import Extension

Norm: TypeAlias = Literal["backward", "ortho", "forward"]


class Fft(Extension):
    """Fourier transforms, their frequencies, and shifts of spectra.

    Along an axis, x is padded with zeros or cut to the given length. `norm` names the transform that is divided by the
    number of points n: the inverse ("backward"), the forward one ("forward"), or both by sqrt(n) ("ortho"). TypeError
    for dtypes that a transform does not take, ValueError for lengths below one, IndexError for axes that x does not
    have.
    """

    # --- along one axis

    def fft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """Fourier transform of `n` points (None: all) along an axis."""
        return self._call("fft", x, n=n, axis=axis, norm=norm)

    def ifft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """Inverse of `fft` with the same arguments."""
        return self._call("ifft", x, n=n, axis=axis, norm=norm)

    def rfft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """The first n//2 + 1 points of the transform of `n` real points; the others are their conjugates."""
        return self._call("rfft", x, n=n, axis=axis, norm=norm)

    def irfft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """Inverse of `rfft`: `n` real points, by default 2 * (m - 1) for m points of x. Pass `n` if it is odd."""
        return self._call("irfft", x, n=n, axis=axis, norm=norm)

    def hfft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """Transform of a signal with Hermitian symmetry, of which x is the first half: `n` real points, as `irfft`."""
        return self._call("hfft", x, n=n, axis=axis, norm=norm)

    def ihfft(self, x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        """Inverse of `hfft`: the first n//2 + 1 points of a signal with Hermitian symmetry, from `n` real points."""
        return self._call("ihfft", x, n=n, axis=axis, norm=norm)

    # --- along several axes

    def fftn(
        self,
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Tensor:
        """Fourier transform along several axes (None: all), of `s[i]` points along `axes[i]` (-1: all)."""
        return self._along_several("fftn", x, s, axes, norm)

    def ifftn(
        self,
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Tensor:
        """Inverse of `fftn` with the same arguments."""
        return self._along_several("ifftn", x, s, axes, norm)

    def rfftn(
        self,
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Tensor:
        """As `fftn`, of real points: `rfft` along the last of the axes, `fft` along the others."""
        return self._along_several("rfftn", x, s, axes, norm)

    def irfftn(
        self,
        x: Tensor,
        /,
        *,
        s: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        norm: Norm = "backward",
    ) -> Tensor:
        """Inverse of `rfftn`: `s[i]` real points along `axes[i]`. A last length of -1 uses all points, as None does."""
        return self._along_several("irfftn", x, s, axes, norm)

    def _along_several(
        self, name: str, x: Tensor, s: Sequence[int] | None, axes: Sequence[int] | None, norm: Norm
    ) -> Tensor:
        return self._call(name, x, s=_as_axes(s), axes=_as_axes(axes), norm=norm)

    # --- frequencies and shifts

    def fftfreq(self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
        """Frequencies of the points of an `fft` of `n` samples `d` apart: zero, then the positive, then the negative
        ones.

        float64 unless `dtype` says otherwise. ValueError for `n` below one and for `d` zero.
        """
        attributes = {"n": n, "d": d, "dtype": dtype}
        return call(self._maker(), "fftfreq", (), attributes, device=device)[0]

    def rfftfreq(self, n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
        """Frequencies of the n//2 + 1 points of an `rfft` of `n` samples `d` apart, none of them negative.

        float64 unless `dtype` says otherwise. ValueError for `n` below one and for `d` zero.
        """
        attributes = {"n": n, "d": d, "dtype": dtype}
        return call(self._maker(), "rfftfreq", (), attributes, device=device)[0]

    def fftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
        """x with its halves along the axes (None: all) swapped, so that frequency zero moves to the middle."""
        return self._call("fftshift", x, axes=_as_axes(axes))

    def ifftshift(self, x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
        """Inverse of `fftshift`; the two differ along axes of odd length."""
        return self._call("ifftshift", x, axes=_as_axes(axes))


def _as_axes(axes: int | Sequence[int] | None) -> Any:
    """A sequence as a tuple; anything else unchanged, for the attribute's check to judge."""
    try:
        return tuple(axes) if isinstance(axes, Iterable) else axes
    except TypeError:  # of an array without dimensions
        return axes
