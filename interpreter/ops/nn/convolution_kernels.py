"""Kernels of conv2d: im2col and matrix products, block by block.

The elements under the windows of a block are copied into columns, one per window: a matrix [taps, windows] for each
group of channels. The convolution is then one product per group, weight @ columns; the gradient by the weight is
dy @ columns.T, and the gradient by the columns, weight.T @ dy, is added back to the elements that they were copied
from, tap by tap. The columns take kh * kw times the memory of the image, so a block is as many images as `blocks`
allows, or as many rows of one image, or as many windows of one row. Source of im2col: Chellapilla, Puri and Simard,
High performance convolutional neural networks for document processing (2006).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...schema.opdef import Array, ArrayModule, Arrays, Attributes
from ...schema.promotion import working_dtype
from .blocks import parts
from .windows import WindowAxis, WindowTap, window_axes


class WindowBlock(NamedTuple):
    """Some rows and columns of windows, with the taps that are not entirely in the padding."""

    rows: slice
    columns: slice
    down: list[WindowTap]
    across: list[WindowTap]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns of windows."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start


class ConvolutionPlan(NamedTuple):
    """The parameters of a call.

    `down`, `across`: the windows along each axis; `taps`: the taps of a window in all channels; `dtype`: the dtype
    in which it is computed.
    """

    xp: ArrayModule
    down: WindowAxis
    across: WindowAxis
    taps: int
    groups: int
    dtype: Any

    @classmethod
    def of(cls, xp: ArrayModule, x: Array, weight: Array, attributes: Attributes) -> ConvolutionPlan:
        """The plan for x and weight."""
        down, across = window_axes(attributes, weight.shape[2:], x.shape)
        return cls(xp, down, across, x.shape[1] * down.size * across.size, attributes["groups"], working_dtype(x.dtype))

    def filters(self, weight: Array) -> Array:
        """weight as [groups, filters, taps]."""
        taps = math.prod(weight.shape[1:])
        return weight.astype(self.dtype, copy=False).reshape(self.groups, weight.shape[0] // self.groups, taps)

    def images(self, count: int) -> list[slice]:
        """The slice of images of each block."""
        return parts(self.xp, count, self.taps * self.down.number * self.across.number * self.dtype.itemsize)

    def blocks(self) -> Iterator[WindowBlock]:
        """The windows of each block: all windows, unless those of one image exceed a block."""
        each = self.taps * self.dtype.itemsize
        for rows in parts(self.xp, self.down.number, self.across.number * each):
            for columns in parts(self.xp, self.across.number, each):
                yield WindowBlock(rows, columns, self.down.taps(rows), self.across.taps(columns))

    def columns(self, images: Array, block: WindowBlock) -> Array:
        """The elements under the windows, as [groups, taps, windows]; 0 in the padding."""
        n, c = images.shape[:2]
        columns = self.xp.zeros((c, self.down.size, self.across.size, n, *block.shape), self.dtype)
        channels_first = images.swapaxes(0, 1)
        for i, rows, rows_seen in block.down:
            for j, across, across_seen in block.across:
                columns[:, i, j, :, rows, across] = channels_first[:, :, rows_seen, across_seen]
        return columns.reshape(self.groups, self.taps // self.groups, n * math.prod(block.shape))

    def scatter(self, columns: Array, images: Array, block: WindowBlock) -> None:
        """Add columns back to the images that they were copied from."""
        n, c = images.shape[:2]
        columns = columns.reshape(c, self.down.size, self.across.size, n, *block.shape)
        channels_first = images.swapaxes(0, 1)
        for i, rows, rows_seen in block.down:
            for j, across, across_seen in block.across:
                channels_first[:, :, rows_seen, across_seen] += columns[:, i, j, :, rows, across]

    def results(self, dy: Array, block: WindowBlock) -> Array:
        """dy of some images at the block's windows, as [groups, filters, windows]."""
        part = dy[:, :, block.rows, block.columns].swapaxes(0, 1).astype(self.dtype, copy=False)
        return part.reshape(self.groups, dy.shape[1] // self.groups, dy.shape[0] * math.prod(block.shape))


def conv2d_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """weight @ columns, block by block."""
    (x, weight, *bias), (out,) = inputs, outputs
    plan = ConvolutionPlan.of(xp, x, weight, attributes)
    filters = plan.filters(weight)
    for images in plan.images(x.shape[0]):
        for block in plan.blocks():
            product = xp.matmul(filters, plan.columns(x[images], block))
            product = product.reshape(out.shape[1], images.stop - images.start, *block.shape)
            if bias:
                product += bias[0][:, None, None, None]
            out[images, :, block.rows, block.columns] = product.swapaxes(0, 1)


def conv2d_grad_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """dx, dweight and dbias, block by block."""
    dy, x, weight = inputs
    if dy.size == 0:
        for out in outputs:
            out[...] = 0
        return
    plan = ConvolutionPlan.of(xp, x, weight, attributes)
    filters = plan.filters(weight)
    dweight = xp.zeros_like(filters)
    for images in plan.images(x.shape[0]):
        dx = xp.zeros(x[images].shape, plan.dtype)
        for block in plan.blocks():
            gradient = plan.results(dy[images], block)
            dweight += xp.matmul(gradient, plan.columns(x[images], block).swapaxes(1, 2))
            plan.scatter(xp.matmul(filters.swapaxes(1, 2), gradient), dx, block)
        outputs[0][images] = dx
    outputs[1][...] = dweight.reshape(weight.shape)
    outputs[2][...] = xp.sum(dy, axis=(0, 2, 3), dtype=plan.dtype)
