"""Blocks of temporaries: a reservation asks for their size before the operands have memory."""

from __future__ import annotations

import numpy as np

from tensord.interpreter.ops.nn.blocks import HOST_BLOCK_BYTES, block_bytes, parts
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case


@each_case(
    ("count", "nbytes"),
    [(0, 8), (1, 8), (5, 8), (HOST_BLOCK_BYTES, 8), (HOST_BLOCK_BYTES, 3), (3, HOST_BLOCK_BYTES * 2), (7, 0)],
)
def test_the_largest_block_is_that_of_the_parts(count, nbytes):
    largest = max((part.stop - part.start for part in parts(np, count, nbytes)), default=0)
    assert block_bytes(count, nbytes) == largest * nbytes


def test_a_vast_number_of_blocks_is_not_counted_one_by_one():
    assert block_bytes(1 << 62, 8) == HOST_BLOCK_BYTES


def test_temporaries_of_a_convolution_that_no_device_has_memory_for_are_known_at_once():
    op, x, weight = find("conv2d"), Meta.of((2, 2, 6, 6), "float32"), Meta.of((2, 2, 3, 3), "float32")
    attributes = dict(op.freeze({"padding": (1, 1 << 50)}))
    outputs = op.infer((x, weight), attributes)
    assert op.temporaries((x, weight), outputs, attributes) < 8 * HOST_BLOCK_BYTES
