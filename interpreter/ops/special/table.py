"""What the special functions have in common: real numbers, elementwise; integers give float64.

Everything is computed in float64, whatever the dtype of the result.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import ArrayModule, Arrays, Attributes, OutputMetas, define
from ...schema.promotion import accepts_any, broadcast, check_mixing
from ...schema.scratch import scratch
from ...types.kinds import REAL
from ...types.meta import Meta, Metas
from ..elementwise import SLOW
from .composed import COMPOSED
from .kernels import LIBRARY, compute

# Bytes per element, besides those of the operands in float64: the result, and masked operands; what is composed.
TEMPORARIES, OF_COMPOSED = 32, 96


def infer_special(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Real floating-point: float64 of integers."""
    shape = broadcast(metas)
    check_mixing(metas)
    dtype = np.result_type(*(m.dtype for m in metas if isinstance(m, Meta)))
    return (Meta.of(shape, dtype if dtype.kind == "f" else np.dtype(np.float64)),)


def special_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """As of some exponentials for each element."""
    return 8 * SLOW * sum(m.size for m in outputs if m is not None) if metas else 0


def define_special(name: str, summary: str, inputs: int = 1, *, cost: int = 1, bounded: bool = True) -> None:
    """Define the op. `cost`: how much longer it takes than an error function; `bounded`: does it at most?"""

    def work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
        return cost * special_work(metas, outputs, attributes)

    def kernel(xp: ArrayModule, given: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
        outputs[0][...] = compute(xp, name, [xp.asarray(x, dtype=np.float64) for x in given])

    define(
        name=name,
        inputs=inputs,
        infer=infer_special,
        summary=summary,
        dtypes=(REAL,),
        kernel=kernel,
        elementwise=True,
        pointwise=True,
        scratch=scratch(elements=8 * inputs + (OF_COMPOSED if name in COMPOSED else TEMPORARIES)),
        bounded=bounded,
        work=work,
        scalars=accepts_any,
        library=LIBRARY,
    )
