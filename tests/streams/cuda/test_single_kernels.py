"""Single ops that CuPy computes by several launches, as one kernel each, compiled as C++ for the host."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import TensordError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.block_kernel import BlockKernel
from tensord.streams.cuda.fused import FusedKernels
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray, KernelsOfCupy
from .kernels_on_host import Host
from .nvrtc import Compiler
from .random_fusions import is_array, some

ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "astype": [{"dtype": name} for name in ("bool", "int32", "float32", "float64")],
    "gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
    "gelu_grad": [{"approximate": "tanh"}, {"approximate": "none"}],
}
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with the kernels of all cases compiled, at once."""
    made = Host(tmp_path_factory.mktemp("single"))
    calls = [call_of(find(op), operands_of(dtypes), attributes) for op, dtypes, attributes in SINGLE]
    made.cupy.compile(
        [kernel.source for call in calls if isinstance(kernel := made.kernels.alone(call, untouched), BlockKernel)]
    )
    return made


SINGLE = [
    ("relu", ("float32",), {}),
    ("relu", ("int8",), {}),
    ("relu_grad", ("float32", "float32"), {}),
    ("sigmoid", ("float64",), {}),
    ("silu", ("float32",), {}),
    ("sigmoid_grad", ("float32", "float32"), {}),
    ("tanh_grad", ("float64", "float64"), {}),
    ("gelu", ("float32",), {"approximate": "tanh"}),
    ("maximum", ("float32", "float64"), {}),
    ("clip", ("float32", "float", "float"), {}),
    ("where", ("bool", "float32", "float64"), {}),
    ("where", ("bool", "float64", "float"), {}),
    ("astype", ("float64",), {"dtype": "float32"}),
    ("astype", ("float32",), {"dtype": "bool"}),
    ("astype", ("bool",), {"dtype": "int64"}),
]


def operands_of(dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]] = ((4, 6),)) -> list[Any]:
    """Arrays of the dtypes, and numbers."""
    numbers = {"bool_": True, "int": 2, "float": 0.25}
    cycle = itertools.cycle(shapes)
    return [numbers[d] if d in numbers else some(Meta.of(next(cycle), d), n) for n, d in enumerate(dtypes)]


def call_of(op: OpDef, operands: Sequence[Any], attributes: Any) -> KernelCall:
    """A call as a plan has it."""
    metas = tuple([Meta.of(x.shape, x.dtype) if is_array(x) else type(x) for x in operands])
    frozen = op.freeze(attributes)
    return KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)


def untouched(*_: Any) -> None:
    """Replaces the call without a generated kernel, and fails."""
    raise AssertionError("the generated kernel was not called")


@each_case(("op", "dtypes", "attributes"), SINGLE)
def test_an_op_that_cupy_computes_by_several_launches_is_one(
    host: Host, op: str, dtypes: tuple[str, ...], attributes: Any
) -> None:
    operands = operands_of(dtypes)
    call = call_of(find(op), operands, attributes)
    kernel = host.kernels.alone(call, untouched)
    assert isinstance(kernel, BlockKernel)
    host.cupy.launched.clear()
    (found,) = results_of(kernel, call, operands)
    assert len(host.cupy.launched) == 1  # the first call compiles it
    compare(call, operands, found)
    apart = [x.T if is_array(x) else x for x in operands]
    assert kernel.launch_of([*apart, found.T]) is None


def results_of(kernel: Any, call: KernelCall, operands: Sequence[Any]) -> list[Any]:
    """The results of a kernel."""
    outputs = [np.zeros(meta.shape, meta.dtype).view(HostArray) for meta in call.outputs if meta is not None]
    with np.errstate(all="ignore"):
        kernel(*operands, *outputs)
    return outputs


def compare(call: KernelCall, operands: Sequence[Any], found: Any) -> None:
    """Compare with NumPy, except the sign of a zero, and the last digits of ops that are not elementary."""
    (expected,) = results_of(call.op.bind(np, len(operands), call.attributes), call, operands)
    rtol = {"float32": 2e-6, "float64": 1e-13}.get(found.dtype.name, 0)
    with np.errstate(all="ignore"):
        close = np.isclose(found, expected, rtol=rtol, atol=1e-37, equal_nan=True)
    assert close.all(), (call.op.name, call.metas, operands, found, expected)


@pytest.mark.cupy
def test_each_op_that_is_one_kernel_computes_what_it_does_with_numpy(tmp_path: Path) -> None:
    """Uses the loops of CuPy itself, as many of them as the host's compiler accepts."""
    cupy = KernelsOfCupy(tmp_path, Compiler.here().cupy)
    kernels = FusedKernels(cupy, lambda _work: None, nullcontext)
    found = []
    for op in (op for op in REGISTRY.values() if op.pointwise and op.inputs > 0 and "shift" not in op.name):
        for dtype in ("bool", "int8", "uint16", "int64", "float32", "float64"):
            dtypes = [*["bool"] * (op.name == "where"), *[dtype] * 3][: op.inputs]
            for attributes in ATTRIBUTES.get(op.name, [{}]):
                with suppress(TensordError):
                    operands = operands_of(dtypes)
                    if op.name == "reciprocal":  # an integer 0 has none
                        operands[0][operands[0] == 0] = 1
                    call = call_of(op, operands, attributes)
                    kernel = kernels.alone(call, untouched)
                    if (
                        isinstance(kernel, BlockKernel) and "_floor_divide(" not in kernel.source
                    ):  # defined in CuPy's header
                        found.append((kernel, call, operands))
    assert len(found) > 200
    cupy.compile([kernel.source for kernel, _, _ in found])
    for kernel, call, operands in found:
        compare(call, operands, *results_of(kernel, call, operands))
