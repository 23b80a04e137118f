"""Random tensors. Counter-based (Philox): the result depends on seed, shape and dtype, not on device or order.

Drawn on the host in every case, so that all devices agree; moved there if the array module is not NumPy.
Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..attributes import SHAPE, check_dtype, check_float
from ..meta import Meta, OperandMeta
from ..opdef import Array, ArrayModule, Attribute, Attributes, Infer, Kernel, OpDef, OutputMetas, define
from .elementwise import slow_work

SEEDS = range(2**64)


def check_seed(value: int, _metas: tuple[OperandMeta, ...], _attributes: Attributes) -> None:
    """A seed has 64 bits and no sign."""
    if type(value) is not int or value not in SEEDS:  # a range looks at its numbers one by one for anything else
        raise ValueError(f"a seed is in [0, 2**64), not {value}")


def check_real(value: Any) -> str:
    """float32 or float64."""
    name = check_dtype(value)
    if name not in {"float32", "float64"}:
        raise TypeError(f"expected float32 or float64, got {name}")
    return name


def infer_random(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """The seed is a Python int."""
    if metas[0] is not int:
        raise TypeError("the seed has to be a Python int")
    return (Meta.of(attributes["shape"], attributes["dtype"]),)


def infer_uniform(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """low <= high."""
    if attributes["low"] > attributes["high"]:
        raise ValueError(f"low {attributes['low']} is above high {attributes['high']}")
    return infer_random(metas, attributes)


def infer_normal(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """std >= 0."""
    if attributes["std"] < 0:
        raise ValueError(f"std is negative: {attributes['std']}")
    return infer_random(metas, attributes)


def _draw(xp: ArrayModule, name: str, seed: int, out: Array, *, scale: float, shift: float) -> None:
    """Fill `out` with scale * draw + shift, without a temporary where NumPy can draw in place."""
    check_seed(seed, (), {})
    generator = np.random.Generator(np.random.Philox(seed))
    in_place = xp is np and out.flags.c_contiguous
    host = out if in_place else np.empty(out.shape, out.dtype)
    getattr(generator, name)(dtype=out.dtype.type, out=host)
    np.multiply(host, scale, host)
    np.add(host, shift, host)
    if not in_place:
        out[...] = xp.asarray(host)


def uniform_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """In [low, high), up to rounding."""
    low, high = attributes["low"], attributes["high"]
    _draw(xp, "random", inputs[0], outputs[0], scale=high - low, shift=low)


def normal_kernel(xp: ArrayModule, inputs: Sequence[Any], outputs: Sequence[Array], attributes: Attributes) -> None:
    """Ziggurat, as NumPy does it."""
    _draw(xp, "standard_normal", inputs[0], outputs[0], scale=attributes["std"], shift=attributes["mean"])


def _define_random(name: str, infer: Infer, kernel: Kernel, summary: str, **parameters: float) -> None:
    define(
        OpDef(
            name=name,
            inputs=1,
            infer=infer,
            summary=summary,
            attributes=(
                SHAPE,
                Attribute("dtype", check_real, "float64"),
                *(Attribute(parameter, check_float, default) for parameter, default in parameters.items()),
            ),
            kernel=kernel,
            work=slow_work,
            scalars=check_seed,
        )
    )


_define_random("uniform", infer_uniform, uniform_kernel, "Uniform in [low, high), from a seed.", low=0.0, high=1.0)
_define_random("normal", infer_normal, normal_kernel, "Normally distributed, from a seed.", mean=0.0, std=1.0)
