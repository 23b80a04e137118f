"""The cross entropy and its gradient as launches of our own, compiled as C++ for the host, against NumPy."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda import loss_kernels
from tensord.streams.cuda.loss_kernels import LossKernel
from tensord.streams.cuda.loss_source import GRADIENT, LOSSES, SMALL_LOSS, loss_source
from tensord.streams.cuda.own_kernel import OwnKernel
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray
from .kernels_on_host import Host
from .nvrtc import Compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

DTYPES = [("float32", "int64"), ("float64", "uint8"), ("float32", "uint64")]
SOURCES = [loss_source(kernels, *dtypes) for kernels in (GRADIENT, LOSSES, SMALL_LOSS) for dtypes in DTYPES]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with all kernels compiled, at once."""
    made = Host(tmp_path_factory.mktemp("losses"))
    made.cupy.compile(SOURCES)
    return made


def untouched(*_: Any) -> None:
    """Replaces the call without a kernel of ours, and fails."""
    raise AssertionError("no kernel of ours was called")


def call_of(op: str, *operands: Any, **attributes: Any) -> KernelCall:
    definition, metas = find(op), tuple(Meta.of(x.shape, x.dtype) for x in operands)
    frozen = definition.freeze(attributes)
    return KernelCall(definition, dict(frozen), metas, infer_once(definition, metas, frozen), False, 0)


def drawn(shape: tuple[int, ...], dtype: str, labels: str) -> tuple[Any, Any]:
    """Logits and labels."""
    rng = np.random.default_rng(len(shape))
    logits = (rng.normal(size=shape) * 3).astype(dtype)
    return logits.view(HostArray), rng.integers(0, shape[-1], shape[:-1]).astype(labels).view(HostArray)


def results(host: Host, op: str, logits: Any, labels: Any, instead: Any = untouched, **attributes: Any) -> Any:
    """The kernel's result, and the kernel."""
    call = call_of(op, logits, labels, **attributes)
    kernel = host.kernels.alone(call, instead)
    assert kernel is not None
    (result,) = call.outputs
    assert result is not None
    found = np.zeros(result.shape, result.dtype).view(HostArray)
    host.cupy.launched.clear()
    kernel(logits, labels, found)
    return found


def exact(op: str, logits: Any, labels: Any, **attributes: Any) -> Any:
    """NumPy's result in float64."""
    call = call_of(op, logits, labels, **attributes)
    out = np.zeros(() if op == "cross_entropy" else logits.shape, "float64")
    with np.errstate(all="ignore"):
        call.op.bind(np, 2, call.attributes)(np.asarray(logits, "float64"), np.asarray(labels), out)
    return out


def assert_close(found: Any, expected: Any) -> None:
    """Check the bound of sums, whose order is free."""
    bound = 64 * np.finfo(found.dtype).eps * max(1, np.abs(expected).max())
    assert np.abs(found - expected).max() <= bound


@each_case(("dtype", "labels"), DTYPES)
@each_case("shape", [(7,), (3, 10), (2, 3, 33), (2, 200)])
def test_the_gradient_is_numpys(host: Host, dtype: str, labels: str, shape: tuple[int, ...]) -> None:
    given = drawn(shape, dtype, labels)
    assert_close(results(host, "cross_entropy_grad", *given), exact("cross_entropy_grad", *given))
    assert host.cupy.launched == ["gradient"]
    assert_close(
        results(host, "cross_entropy_grad", *given, scale=0.25), exact("cross_entropy_grad", *given, scale=0.25)
    )


@each_case(("dtype", "labels"), DTYPES)
@each_case(
    ("shape", "launched"),
    [((7,), ["loss"]), ((300, 10), ["loss"]), ((2, 3, 64), ["loss"]), ((3, 70), ["losses", "mean"])],
)
def test_the_loss_is_numpys_by_one_launch_or_two(
    host: Host, dtype: str, labels: str, shape: tuple[int, ...], launched: list[str]
) -> None:
    given = drawn(shape, dtype, labels)
    assert_close(results(host, "cross_entropy", *given), exact("cross_entropy", *given))
    assert host.cupy.launched == launched


@each_case("op", ["cross_entropy", "cross_entropy_grad"])
@each_case("shape", [(5, 10), (5, 70)])
def test_a_part_of_the_rows_has_the_mean_of_all(host: Host, op: str, shape: tuple[int, ...]) -> None:
    given = drawn(shape, "float32", "int64")
    assert_close(results(host, op, *given, count=12), exact(op, *given, count=12))
    np.testing.assert_allclose(results(host, op, *given, count=5), results(host, op, *given))


def test_both_ways_to_a_loss_agree(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn((40, 10), "float64", "uint8")
    short = results(host, "cross_entropy", *given)
    monkeypatch.setattr(loss_kernels, "FEW", 39)
    long = results(host, "cross_entropy", *given)
    assert host.cupy.launched == ["losses", "mean"]
    np.testing.assert_allclose(short, long, rtol=1e-14)


@each_case("wrong", [10, 200, 2**63 + 1])
def test_a_label_out_of_range_makes_its_row_nan_and_reads_nothing_else(host: Host, wrong: int) -> None:
    logits, labels = drawn((4, 10), "float32", "uint64")
    labels[2] = wrong
    found = results(host, "cross_entropy_grad", logits, labels)
    assert np.isnan(found[2]).all()
    assert np.isfinite(found[[0, 1, 3]]).all()
    assert np.isnan(results(host, "cross_entropy", logits, labels))


def test_infinities_are_numpys(host: Host) -> None:
    logits, labels = drawn((3, 10), "float32", "int64")
    logits[0, :5], logits[1, :] = -np.inf, -np.inf
    labels[:] = 7, 1, 2
    np.testing.assert_allclose(
        results(host, "cross_entropy_grad", logits, labels), exact("cross_entropy_grad", logits, labels), rtol=1e-5
    )
    assert results(host, "cross_entropy", logits, labels) == np.inf == exact("cross_entropy", logits, labels)


def test_a_gradient_may_lie_in_the_memory_of_the_logits(host: Host) -> None:
    logits, labels = drawn((4, 33), "float32", "int64")
    expected = results(host, "cross_entropy_grad", logits, labels)
    kernel = host.kernels.alone(call_of("cross_entropy_grad", logits, labels), untouched)
    assert isinstance(kernel, LossKernel)
    kernel(logits, labels, logits)
    assert logits.tobytes() == expected.tobytes()


def test_a_row_of_a_gradient_has_the_same_bits_whatever_lies_beside_it(host: Host) -> None:
    logits, labels = drawn((5, 33), "float32", "int64")
    whole = results(host, "cross_entropy_grad", logits, labels, scale=5.0)
    for n in range(5):
        row, label = logits[n : n + 1].copy().view(HostArray), labels[n : n + 1].copy().view(HostArray)
        assert results(host, "cross_entropy_grad", row, label).tobytes() == whole[n].tobytes()


@each_case("shape", [(4, 10), (4, 100)])
def test_what_is_not_packed_is_cupys(host: Host, shape: tuple[int, ...]) -> None:
    called: list[Any] = []
    logits, labels = drawn(shape, "float32", "int64")
    apart = np.asfortranarray(logits).view(HostArray), np.repeat(labels, 2)[::2].view(HostArray)
    for x, y in ((apart[0], labels), (logits, apart[1])):
        results(host, "cross_entropy", x, y, lambda *arrays: called.append(arrays))
    assert len(called) == 2
    assert host.cupy.launched == []


def test_other_dtypes_and_no_rows_are_cupys(host: Host) -> None:
    labels = np.zeros(4, "int64")
    for logits in (np.zeros((4, 3), "float16"), np.zeros((0, 3), "float32")):
        assert host.kernels.alone(call_of("cross_entropy", logits, labels[: len(logits)]), untouched) is None


def test_one_launch_is_a_node_whose_arguments_may_change(host: Host) -> None:
    logits, labels = drawn((4, 10), "float32", "int64")
    kernel = host.kernels.alone(call_of("cross_entropy", logits, labels), untouched)
    assert isinstance(kernel, OwnKernel)
    out = np.zeros((), "float32").view(HostArray)
    launch = kernel.launch_of((logits, labels, out))
    assert launch is not None
    assert [each is other for each, other in zip(launch.arguments, (logits, labels, out), strict=False)] == [True] * 3


@pytest.mark.cupy
def test_the_kernels_compile() -> None:
    Compiler.here().compile(SOURCES, "--fmad=false")
