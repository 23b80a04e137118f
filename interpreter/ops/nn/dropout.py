"""Dropout. Counter-based (Philox): which elements stay depends on seed, shape and rate, not on device, dtype or order.

So the gradient is the same op with the same seed, and no mask has to be kept between the two passes. The numbers are
drawn on the host, as those of `random` are, so that all devices agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...schema.attributes import check_float
from ...schema.opdef import ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ...schema.scratch import scratch
from ...types import kinds
from ...types.meta import Metas, tensor
from ..elementwise import slow_work
from ..random import check_seed
from ..rules.reasons import DRAWN_WHOLE
from .kernels import fill_masked


def check_rate(value: Any) -> float:
    """A number in [0, 1]."""
    rate = check_float(value)
    if not 0 <= rate <= 1:
        raise ValueError(f"a rate is in [0, 1], not {rate}")
    return rate


def infer_dropout(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """A tensor, and a seed, which is a Python int; the result has the tensor's meta."""
    x, seed = metas
    if seed is not int:
        raise TypeError("the seed has to be a Python int")
    return (tensor((x,)),)


def dropout_work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """A draw for each element, and more than one pass."""
    return 2 * slow_work(metas, outputs, attributes)


def dropout_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Dropped elements are 0, also where x is infinite or NaN."""
    (x, seed), rate = inputs, attributes["rate"]
    check_seed(seed, (), {})
    drawn = np.random.Generator(np.random.Philox(seed)).random(x.shape, dtype=np.float32)
    kept = xp.asarray(drawn >= rate)
    fill_masked(xp, x * (0 if rate == 1 else 1 / (1 - rate)), kept, outputs[0])


define(
    name="dropout",
    inputs=2,
    infer=infer_dropout,
    summary="Each element 0 with probability `rate`, else over 1 - rate: (x, seed). It is its own gradient.",
    operands=("x", "seed"),
    dtypes=(kinds.REAL_FLOATING, kinds.SCALAR),
    attributes=(Attribute("rate", check_rate),),
    kernel=dropout_kernel,
    scratch=scratch(operands=2, elements=5),
    work=dropout_work,
    scalars=check_seed,
    layouts=DRAWN_WHOLE,
)
