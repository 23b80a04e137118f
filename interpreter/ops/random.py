"""Random tensors. The generator is counter-based (Philox), so a result depends only on its stream, shape and dtype.

A stream is named by up to three Python ints in [0, 2**64): a seed, the number of a call, and the number of a part of
that call (control flow is one call that may draw several times). With a call, these are Philox's key and the third
and fourth of the four words of its counter, so the streams of different calls are 2**128 blocks apart, more than any
program draws. A seed alone is hashed to the key by NumPy's SeedSequence, so its stream is none of those. A stream
has the same numbers in every run with one release of NumPy; another release may draw others.

Numbers are always drawn on the host, so that all devices agree bit for bit, and are then copied to the device.
Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ..schema.attributes import SHAPE, check_dtype, check_float, check_int, check_integer
from ..schema.opdef import (
    VARIADIC,
    Array,
    ArrayModule,
    Arrays,
    Attribute,
    Attributes,
    Infer,
    Kernel,
    OutputMetas,
    Work,
    define,
)
from ..schema.promotion import WIRE_INTEGERS, working_dtype
from ..schema.scratch import total
from ..types import kinds
from ..types.kinds import DTypes
from ..types.meta import Meta, Metas, OperandMeta, tensor_meta
from .elementwise import slow_work
from .rules.axes import along_other_axes
from .rules.reasons import DRAWN_WHOLE

Host: TypeAlias = np.ndarray[Any, np.dtype[Any]]

SEEDS: Final = range(2**64)
# One past the largest integer of any dtype. msgpack has no integer that large, so the wire has a string.
END_BOUND: Final = "2**64"

_STREAM_OPERANDS: Final = ("seed", "call", "part")
_BLOCK_ELEMENTS = (
    1 << 16
)  # elements drawn at a time if NumPy cannot draw in place; another size would change the numbers


# --- streams


def check_seed(value: int, _metas: Metas, _attributes: Attributes) -> None:
    """Raise ValueError unless a seed, or the number of a call or a part, is an unsigned 64-bit integer."""
    if type(value) is not int or value not in SEEDS:  # for other types, `in` would compare one by one
        raise ValueError(f"seeds and numbers of calls must be in [0, 2**64), not {value}")


def _check_stream(metas: Sequence[OperandMeta]) -> None:
    for name, meta in zip(_STREAM_OPERANDS, metas, strict=False):
        if meta is not int:
            raise TypeError(f"the {name} must be a Python int")


def generator(stream: Sequence[int]) -> np.random.Generator:
    """The generator of a stream, at its first number.

    ValueError unless the stream's name consists of unsigned 64-bit integers.
    """
    for value in stream:
        check_seed(value, (), {})
    seed, *words = stream
    counter = sum(word << shift for word, shift in zip(words, (128, 192), strict=False))
    return np.random.Generator(np.random.Philox(key=seed, counter=counter) if words else np.random.Philox(seed))


# --- infer


def of_dtypes(dtypes: DTypes) -> Callable[[Any], str]:
    """A check of an attribute that accepts only these dtypes."""

    def check(value: Any) -> str:
        name = check_dtype(value)
        if name not in dtypes:
            raise TypeError(f"expected one of the {kinds.kind_name(dtypes)} dtypes, got {name}")
        return name

    return check


def check_bound(value: Any) -> int | str:
    """A bound of random integers: an int that fits some dtype, or 2**64, which is encoded as `END_BOUND`."""
    if isinstance(value, str) and value == END_BOUND:
        return END_BOUND
    bound = check_integer(value)
    if bound == WIRE_INTEGERS.stop:
        return END_BOUND
    if bound not in WIRE_INTEGERS:
        raise OverflowError("the integer has more than 64 bits")
    return bound


def _bound(normal: int | str) -> int:
    return WIRE_INTEGERS.stop if isinstance(normal, str) else normal


def infer_shaped(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shape and dtype of the attributes; bool without a dtype."""
    _check_stream(metas)
    return (Meta.of(attributes["shape"], attributes.get("dtype", "bool")),)


def infer_uniform(metas: Metas, attributes: Attributes) -> OutputMetas:
    """low <= high, both within the dtype."""
    low, high = attributes["low"], attributes["high"]
    if low > high:
        raise ValueError(f"low {low} is above high {high}")
    largest = float(np.finfo(attributes["dtype"]).max)
    widest = float(np.finfo(working_dtype(np.dtype(attributes["dtype"]))).max)  # type: ignore[type-var]
    if max(abs(low), abs(high)) > largest or high - low > widest:
        raise ValueError(f"the range from {low} to {high} is too wide for {attributes['dtype']}")
    return infer_shaped(metas, attributes)


def infer_normal(metas: Metas, attributes: Attributes) -> OutputMetas:
    """std >= 0."""
    if attributes["std"] < 0:
        raise ValueError(f"std is negative: {attributes['std']}")
    return infer_shaped(metas, attributes)


def infer_integers(metas: Metas, attributes: Attributes) -> OutputMetas:
    """low < high, and all integers in [low, high) fit the dtype."""
    low, high = _bound(attributes["low"]), _bound(attributes["high"])
    if low >= high:
        raise ValueError(f"there is no integer in [{low}, {high})")
    limits = np.iinfo(attributes["dtype"])
    if low < int(limits.min) or high - 1 > int(limits.max):
        raise OverflowError(f"integers in [{low}, {high}) do not fit {attributes['dtype']}")
    return infer_shaped(metas, attributes)


def infer_bernoulli(metas: Metas, attributes: Attributes) -> OutputMetas:
    """0 <= p <= 1."""
    if not 0 <= attributes["p"] <= 1:
        raise ValueError(f"a probability must be in [0, 1], not {attributes['p']}")
    return infer_shaped(metas, attributes)


def infer_permutation(metas: Metas, attributes: Attributes) -> OutputMetas:
    """n integers, as int64."""
    _check_stream(metas)
    if attributes["n"] < 0:
        raise ValueError(f"n is negative: {attributes['n']}")
    return (Meta.of((attributes["n"],), "int64"),)


def infer_permute(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The meta of x, which must have rows."""
    x = tensor_meta(metas)
    _check_stream(metas[1:])
    if x.ndim == 0:
        raise ValueError("a 0-d tensor has no rows")
    return (x,)


# --- kernels


def _host(xp: ArrayModule, out: Array, dtype: np.dtype[Any]) -> Host:
    """The array to draw into: the output itself if possible, else packed memory on the host."""
    in_place = xp is np and out.flags.c_contiguous and out.dtype == dtype
    return out if in_place else np.empty(out.shape, dtype)


def _store(xp: ArrayModule, host: Host, out: Array) -> None:
    """Store the drawn numbers in the output. They are rounded on the host, not by the device."""
    if host is not out:
        out[...] = xp.asarray(host.astype(out.dtype, copy=False))


def _draw(name: str, stream: Sequence[int], host: Host, *, scale: float, shift: float) -> None:
    """Fill `host` with scale * draw + shift, without a temporary; each part of a complex number is one draw."""
    parts = host.reshape(-1).view(host.real.dtype)
    getattr(generator(stream), name)(dtype=parts.dtype.type, out=parts)
    np.multiply(host, scale, host)
    np.add(host, shift, host)


def _draw_blocks(xp: ArrayModule, out: Array, draw: Callable[[int], Host]) -> None:
    """Fill the output with the results of draw(size), one block at a time."""
    host = _host(xp, out, out.dtype)
    flat = host.reshape(-1)
    for start in range(0, flat.size, _BLOCK_ELEMENTS):
        block = flat[start : start + _BLOCK_ELEMENTS]
        block[...] = draw(block.size)
    _store(xp, host, out)


def _largest_below(high: float) -> np.float16:
    largest = np.float16(high)
    return largest if float(largest) < high else np.nextafter(largest, np.float16(-math.inf))


def uniform_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Numbers in [low, high), up to rounding.

    One float16 in thousands would be rounded up to `high`; it is limited to the number below.
    """
    (out,), low, high = outputs, attributes["low"], attributes["high"]
    host = _host(xp, out, working_dtype(out.dtype))
    _draw("random", inputs, host, scale=high - low, shift=low)
    if out.dtype == np.float16 and low < high:
        np.minimum(host, np.float32(_largest_below(high)), out=host)
    _store(xp, host, out)


def normal_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Normal numbers, by NumPy's ziggurat method. Each part of a complex number has half of its variance."""
    (out,), std = outputs, attributes["std"]
    host = _host(xp, out, working_dtype(out.dtype))
    scale = std * math.sqrt(0.5) if out.dtype.kind == "c" else std
    _draw("standard_normal", inputs, host, scale=scale, shift=attributes["mean"])
    _store(xp, host, out)


def integers_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Unbiased integers. Source: Lemire, Fast random integer generation in an interval (2019), as NumPy does it."""
    low, high = _bound(attributes["low"]), _bound(attributes["high"])
    source, dtype = generator(inputs), outputs[0].dtype
    _draw_blocks(xp, outputs[0], lambda size: source.integers(low, high, size, dtype))


def bernoulli_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """True where a uniform float64 is below p: never for p = 0, always for p = 1."""
    source, p = generator(inputs), attributes["p"]
    _draw_blocks(xp, outputs[0], lambda size: source.random(size) < p)


def _order(stream: Sequence[int], n: int) -> Host:
    order = np.arange(n, dtype=np.int64)
    generator(stream).shuffle(order)
    return order


def permutation_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """A Fisher-Yates shuffle."""
    outputs[0][...] = xp.asarray(_order(inputs, len(outputs[0])))


def permute_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
    """Row i of the result is row p[i] of x, p being `permutation` of as many rows."""
    x, *stream = inputs
    xp.take(x, xp.asarray(_order(stream, len(x))), axis=0, out=outputs[0])


# --- the table


def draw_scratch(_metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """Integers are drawn in blocks, and a permutation at once; float16 is drawn as float32, then rounded."""
    (out,) = outputs
    if out is None:
        return 0
    if out.dtype.kind in "fc":
        return 6 * out.size if out.dtype == np.float16 else 0
    return 8 * out.size if "n" in attributes else 9 * min(out.size, _BLOCK_ELEMENTS)


def permute_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """A packed copy of x, the rows before they are stored, and their order."""
    x = tensor_meta(metas)
    return x.nbytes + total(outputs) + 8 * x.shape[0]


def permutation_work(_metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """A shuffle accesses memory at random; then each row is copied."""
    return sum(20 * m.shape[0] + m.size for m in outputs if m is not None)


def _define_random(
    name: str, infer: Infer, kernel: Kernel, summary: str, *attributes: Attribute, work: Work = slow_work
) -> None:
    define(
        name=name,
        inputs=VARIADIC,
        infer=infer,
        summary=summary,
        operands=_STREAM_OPERANDS,
        dtypes=(kinds.SCALAR,),
        attributes=attributes,
        kernel=kernel,
        total=True,
        scratch=draw_scratch,
        work=work,
        scalars=check_seed,
        layouts=DRAWN_WHOLE,
    )


_define_random(
    "uniform",
    infer_uniform,
    uniform_kernel,
    "Uniformly distributed in [low, high), from a seed: (seed, [call, [part]]).",
    SHAPE,
    Attribute("dtype", of_dtypes(kinds.REAL_FLOATING), "float64"),
    Attribute("low", check_float, 0.0),
    Attribute("high", check_float, 1.0),
)
_define_random(
    "normal",
    infer_normal,
    normal_kernel,
    "Normally distributed, from a seed: (seed, [call, [part]]). Parts of complex numbers have half the variance each.",
    SHAPE,
    Attribute("dtype", of_dtypes(kinds.FLOATING), "float64"),
    Attribute("mean", check_float, 0.0),
    Attribute("std", check_float, 1.0),
)
_define_random(
    "integers",
    infer_integers,
    integers_kernel,
    "Integers in [low, high), all equally likely, from a seed: (seed, [call, [part]]).",
    Attribute("low", check_bound),
    Attribute("high", check_bound),
    SHAPE,
    Attribute("dtype", of_dtypes(kinds.INTEGER), "int64"),
)
_define_random(
    "bernoulli",
    infer_bernoulli,
    bernoulli_kernel,
    "True with probability p, from a seed: (seed, [call, [part]]).",
    SHAPE,
    Attribute("p", check_float, 0.5),
)
_define_random(
    "permutation",
    infer_permutation,
    permutation_kernel,
    "The integers in [0, n) in random order, from a seed: (seed, [call, [part]]).",
    Attribute("n", check_int),
    work=permutation_work,
)
define(
    name="permute",
    inputs=VARIADIC,
    least=2,
    infer=infer_permute,
    summary="The rows of x, along its first axis, in the order of a permutation: (x, seed, [call, [part]]).",
    operands=("x", *_STREAM_OPERANDS),
    dtypes=(kinds.ANY, kinds.SCALAR),
    kernel=permute_kernel,
    scratch=permute_scratch,
    work=permutation_work,
    scalars=check_seed,
    needs=("take",),
    layouts=along_other_axes(lambda _x, _attributes: (0,)),
)
