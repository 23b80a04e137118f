"""Runs a kernel as a device with CuPy does, on values that behave like CuPy's (`fake_cuda.values`)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find

from ...streams.fake_cuda.names import check_call
from ...streams.fake_cuda.values import call, like_cupy, plain
from ..conftest import meta_of


class Elsewhere:
    """NumPy's functions, with the results that CuPy's would have."""

    def __init__(self, module: ModuleType = np) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, ModuleType):
            return Elsewhere(found)
        path = f"cupy{self._module.__name__.removeprefix('numpy')}.{name}"
        return found if isinstance(found, type) or not callable(found) else Function(found, path)


class Function:
    """A function of `Elsewhere`, with the methods of a ufunc."""

    def __init__(self, function: Any, path: str) -> None:
        self._function = function
        self._path = path

    def __call__(self, *args: Any, **options: Any) -> Any:
        check_call(self._path, len(args), options)
        return call(self._function, *args, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._function, name)
        return lambda *args, **options: method(*map(like_cupy, args), **options)


def run_on(xp: Any, name: str, *operands: Any, **attributes: Any) -> list[np.ndarray]:
    """The results of an op's kernel with that array module, NumPy or `Elsewhere`."""
    op = find(name)
    frozen = op.freeze(attributes)
    outputs = [np.full(m.shape, 1, m.dtype) for m in infer_once(op, tuple(map(meta_of, operands)), frozen) if m]
    given = (*operands, *outputs) if xp is np else map(like_cupy, (*operands, *outputs))
    with np.errstate(all="ignore"):
        returned = op.bind(xp, len(operands), dict(frozen))(*given)
    return outputs or [plain(each) for each in returned]


def evaluate_elsewhere(name: str, *operands: Any, **attributes: Any) -> np.ndarray:
    """The first result of an op's kernel with `Elsewhere`."""
    return run_on(Elsewhere(), name, *operands, **attributes)[0]
