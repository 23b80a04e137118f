"""The temporaries of each op's kernel on the device, against their reservation.

A figure for each op, of the call that exceeds its reservation most: bytes, reserved bytes, and bytes for each element
of the largest tensor, as `streams/cuda/scratch.py` has them. An op that takes more than is reserved is "short": no
failure, since a kernel without memory lets cached memory be freed and tries again, but a line that the table should
have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import UNCOUNTED_BYTES, find, lacking
from tensord.streams.cuda.scratch import least_temporaries

from ..interpreter.conftest import meta_of
from ..interpreter.ops.large_calls import Case, every_case
from .stage import Given, main

UNBOUNDED = frozenset({"repeat_each"})  # data decide the size
Call = Callable[[], Any]


class Taken(NamedTuple):
    """Bytes that a call took, and those that are reserved for it."""

    bytes: int
    reserved: int
    elements: int

    @property
    def is_short(self) -> bool:
        """Is it more than is reserved, and more than needs a reservation?"""
        return self.bytes > (self.reserved + UNCOUNTED_BYTES) * 9 // 8


class Meter:
    """CuPy, with a pool that is asked after each allocation."""

    def __init__(self) -> None:
        import cupy

        self.xp: Any = cupy
        self._pool = cupy.cuda.MemoryPool()
        self._most = 0

    def _allocate(self, nbytes: int) -> Any:
        block = self._pool.malloc(nbytes)
        self._most = max(self._most, self._pool.used_bytes())
        return block

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Within the block calls can be measured."""
        with self.xp.cuda.using_allocator(self._allocate):
            yield

    def peak(self, call: Call) -> tuple[int, Any]:
        """The bytes that the call takes at its peak, and its result. Plans of FFTs are made anew."""
        self.xp.fft.config.get_plan_cache().clear()
        before = self._most = self._pool.used_bytes()
        made = call()
        return self._most - before, made


def measure(meter: Meter, case: Case) -> Taken | None:
    """The bytes that the call takes; None if the op does not accept it."""
    op = find(case.op)
    frozen = op.freeze(case.attributes)
    metas = tuple(map(meta_of, case.operands))
    try:
        outputs = infer_once(op, metas, frozen)
    except MetadataError:
        return None
    kernel = op.bind(meter.xp, len(case.operands), dict(frozen))
    operands = [meter.xp.asarray(x) if isinstance(x, np.ndarray) else x for x in case.operands]
    results = [meter.xp.ones(m.shape, m.dtype) for m in outputs if m is not None]
    with np.errstate(all="ignore"):
        peak, made = meter.peak(lambda: kernel(*operands, *results))
    taken = peak - (sum(array.nbytes for array in made) if op.dynamic else 0)
    reserved = op.temporaries(metas, outputs, dict(frozen), least=least_temporaries(op.name, metas, outputs))
    elements = max(x.size for x in (*operands, *results, np.zeros(1)) if hasattr(x, "size"))
    return Taken(taken, reserved, elements)


def worst_of(meter: Meter, cases: list[Case], is_late: Callable[[], bool] = lambda: False) -> Taken | None:
    """The call that exceeds its reservation most, as far as time allows: compiling a kernel takes seconds.
    AssertionError if a call fails.
    """
    found = [taken for case in cases if not is_late() and (taken := measure(meter, case)) is not None]
    return max(found, key=lambda taken: taken.bytes - taken.reserved, default=None)


def cases_by_op(meter: Meter) -> dict[str, list[Case]]:
    """The calls of each op that can be measured here."""
    left_out = UNBOUNDED | lacking(meter.xp)
    found: dict[str, list[Case]] = {}
    for case in every_case():
        if case.op not in left_out:
            found.setdefault(case.op, []).append(case)
    return found


def work(given: Given) -> None:
    """One check for each op: that it can be measured."""
    meter = Meter()
    by_op = cases_by_op(meter)
    names = given.mine(sorted(by_op), str)
    with meter.ready():
        for index, name in enumerate(names):
            if given.remaining < 0:
                given.record.unreached(len(names) - index, len(names), f"{given.seconds:.0f} s are over")
                break
            with given.record.check(name):
                tell(given, name, worst_of(meter, by_op[name], lambda: given.remaining < 0))


def tell(given: Given, name: str, taken: Taken | None) -> None:
    """State the figure of an op whose temporaries are worth reserving for."""
    if taken is not None and max(taken.bytes, taken.reserved) > UNCOUNTED_BYTES:
        given.record.figure(
            name, taken.bytes, "bytes", reserved=taken.reserved, per_element=round(taken.bytes / taken.elements, 1),
            met="short" if taken.is_short else "",
        )  # fmt: skip


if __name__ == "__main__":
    main(work)
