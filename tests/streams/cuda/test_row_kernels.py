"""Softmax and norms as one launch each, compiled as C++ for the host, each thread of a block a thread of the host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.row_kernels import RowKernel, threads_for
from tensord.streams.cuda.row_source import ROW_OPS, row_source
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray
from .kernels_on_host import Host
from .nvrtc import Compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

OPERANDS = {
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm", "rms_norm"), 1),
    **dict.fromkeys(("softmax_grad", "log_softmax_grad"), 2),
}
CASES = [*list(OPERANDS.items()), ("layer_norm", 2), ("layer_norm", 3), ("rms_norm", 2)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with all kernels compiled, at once."""
    made = Host(tmp_path_factory.mktemp("rows"))
    sources = [row_source(op, count, dtype) for op, count in CASES for dtype in ("float32", "float64")]
    made.cupy.compile(sources)
    return made


def call_of(op: str, metas: Sequence[Meta], in_place: bool = False, **attributes: Any) -> KernelCall:
    """A call as a plan has it."""
    definition = find(op)
    frozen = definition.freeze(attributes)
    outputs = infer_once(definition, tuple(metas), frozen)
    return KernelCall(definition, dict(frozen), tuple(metas), outputs, in_place, 0)


def untouched(*_: Any) -> None:
    """Replaces the call without a generated kernel, and fails."""
    raise AssertionError("the generated kernel was not called")


def values_of(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Ordinary values."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype).view(HostArray)


def results(host: Host, op: str, operands: Sequence[Any], **attributes: Any) -> tuple[Any, Any]:
    """The results of the generated kernel, and of NumPy in float64."""
    metas = [Meta.of(x.shape, x.dtype) for x in operands]
    call = call_of(op, metas, **attributes)
    kernel = host.kernels.alone(call, untouched)
    assert kernel is not None
    found = np.zeros(operands[0].shape, operands[0].dtype).view(HostArray)
    kernel(*operands, found)
    exact = np.zeros(found.shape, "float64")
    with np.errstate(all="ignore"):
        own = call.op.bind(np, len(metas), call.attributes)
        own(*[np.asarray(x, "float64") for x in operands], exact)
    return found, exact


def operands_of(op: str, count: int, shape: tuple[int, ...], dtype: str) -> list[Any]:
    """Operands of an op: tensors of rows first, then single rows."""
    rows = len(ROW_OPS[op].rows)
    found = [values_of(shape if n < rows else shape[-1:], dtype, n) for n in range(count)]
    if op == "softmax_grad":
        found[1][...] = np.exp(found[1]) / np.exp(found[1]).sum(-1, keepdims=True)
    if op == "log_softmax_grad":
        found[1][...] = np.log(np.exp(found[1]) / np.exp(found[1]).sum(-1, keepdims=True))
    return found


@each_case("dtype", ["float32", "float64"])
@each_case("shape", [(5,), (2, 1), (2, 33), (2, 1, 200)])
@each_case(("op", "count"), CASES)
def test_a_row_is_what_numpy_computes(host: Host, op: str, count: int, shape: tuple[int, ...], dtype: str) -> None:
    found, exact = results(host, op, operands_of(op, count, shape, dtype))
    bound = 64 * np.finfo(dtype).eps * max(1, np.abs(exact).max())
    assert np.abs(found - exact).max() <= bound


@each_case(("op", "count"), [("softmax", 1), ("layer_norm", 3)])
def test_a_row_may_be_longer_than_all_threads_take_at_once(host: Host, op: str, count: int) -> None:
    found, exact = results(host, op, operands_of(op, count, (1, 1500), "float32"))
    assert np.abs(found - exact).max() <= 64 * np.finfo("float32").eps * max(1, np.abs(exact).max())


def test_special_values_are_numpys(host: Host) -> None:
    x = np.zeros((6, 40), "float32").view(HostArray)
    x[0, 3], x[1, 4], x[2, :], x[3, 5], x[4, :] = np.nan, np.inf, -np.inf, -np.inf, 3e38
    for op in ("softmax", "log_softmax"):
        found, exact = results(host, op, [x])
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_a_result_may_lie_in_the_operands_memory(host: Host) -> None:
    x = values_of((4, 100), "float32", 1)
    expected, _ = results(host, "softmax", [x])
    call = call_of("softmax", [Meta.of(x.shape, x.dtype)], in_place=True)
    kernel = host.kernels.alone(call, untouched)
    assert kernel is not None
    kernel(x, x)
    assert x.tobytes() == expected.tobytes()


def test_rows_have_the_same_bits_whatever_lies_beside_them(host: Host) -> None:
    x = values_of((4, 150), "float32", 2)
    for op in ("softmax", "layer_norm"):
        whole, _ = results(host, op, [x])
        for n in range(4):
            alone, _ = results(host, op, [x[n].copy().view(HostArray)])
            assert alone.tobytes() == whole[n].tobytes()


@each_case(
    ("op", "metas", "in_place", "attributes"),
    [
        ("softmax", [Meta.of((4, 5), "float32")], False, {"axis": 0}),
        ("softmax", [Meta.of((4, 5), "float16")], False, {}),
        ("softmax", [Meta.of((0, 5), "float32")], False, {}),
        ("layer_norm", [Meta.of((4, 5), "float32")], False, {"axis": (0, 1)}),
        ("layer_norm", [Meta.of((4, 5), "float32")], True, {}),
    ],
)
def test_other_calls_are_cupys(host: Host, op: str, metas: list[Meta], in_place: bool, attributes: Any) -> None:
    assert host.kernels.alone(call_of(op, metas, in_place, **attributes), untouched) is None


def test_operands_that_are_not_packed_are_cupys(host: Host) -> None:
    called: list[Any] = []
    kernel = host.kernels.alone(call_of("softmax", [Meta.of((5, 5), "float32")]), lambda *given: called.append(given))
    assert isinstance(kernel, RowKernel)
    x = values_of((5, 5), "float32", 0)
    assert kernel.launch_of((x.T, x)) is None
    kernel(x.T, x)
    assert len(called) == 1


@each_case(("width", "threads"), [(1, 32), (128, 32), (200, 64), (1024, 256), (100_000, 256)])
def test_a_row_has_some_elements_for_each_thread(width: int, threads: int) -> None:
    assert threads_for(width) == threads


@pytest.mark.cupy
def test_the_kernels_compile() -> None:
    sources = [row_source(op, count, dtype) for op, count in CASES for dtype in ("float32", "float64")]
    Compiler.here().compile(sources, "--fmad=false")
