"""Windows that slide along the rows and columns of images [n, c, height, width], for convolution and pooling.

Images are not copied into a padded array, which may be many times larger. Instead each tap (one position within the
window) skips the windows for which it lies in the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ...schema.opdef import Attributes

Pair: TypeAlias = tuple[int, int]


class WindowTap(NamedTuple):
    """A position in the window, the windows for which it lies in the image, and the elements of the image there."""

    position: int
    windows: slice
    seen: slice


class WindowAxis(NamedTuple):
    """`number` windows of `size` taps along a padded axis of `length`; windows are `stride` apart, taps `dilation`."""

    size: int
    stride: int
    padding: int
    dilation: int
    length: int
    number: int

    def taps(self, part: slice | None = None) -> list[WindowTap]:
        """The taps of all windows, or of a part of them, that lie in the image; windows count from the start of the
        part."""
        begin, end = (0, self.number) if part is None else (part.start, part.stop)
        low = max(0, _ceil(self.padding - (self.number - 1) * self.stride, self.dilation))
        high = min(self.size, _ceil(self.length + self.padding, self.dilation))
        taps = []
        for position in range(low, high):
            shift = position * self.dilation - self.padding
            first, stop = max(begin, _ceil(-shift, self.stride)), min(end, _ceil(self.length - shift, self.stride))
            if first < stop:
                seen = slice(first * self.stride + shift, (stop - 1) * self.stride + shift + 1, self.stride)
                taps.append(WindowTap(position, slice(first - begin, stop - begin), seen))
        return taps


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def window_axis(name: str, size: int, stride: int, padding: int, dilation: int, length: int) -> WindowAxis:
    """The windows along one axis. ValueError if none fits."""
    span = dilation * (size - 1) + 1
    if span > length + 2 * padding:
        raise ValueError(f"{length + 2 * padding} {name} are too few for a window of {span} {name}")
    return WindowAxis(size, stride, padding, dilation, length, (length + 2 * padding - span) // stride + 1)


def window_axes(attributes: Attributes, size: Sequence[int], shape: Sequence[int]) -> tuple[WindowAxis, WindowAxis]:
    """The windows of that size down and across images of that shape. If `stride` is None, they are adjacent."""
    stride, padding, dilation = attributes["stride"] or size, attributes["padding"], attributes.get("dilation", (1, 1))
    down = window_axis("rows", size[0], stride[0], padding[0], dilation[0], shape[-2])
    return down, window_axis("columns", size[1], stride[1], padding[1], dilation[1], shape[-1])
