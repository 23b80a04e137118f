"""The rows of attention as launches of our own, compiled as C++ for the host, against NumPy."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.ops.nn.attention import ScoreRows
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.streams.cuda.attention_kernels import AttentionRows, attention_kernel, attention_source, gradient_source
from tensord.streams.device import KernelCall

from ...each_case import each_case
from .host_compiled import HostArray
from .kernels_on_host import Host
from .nvrtc import Compiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

SOURCES = [attention_source(dtype, mask) for dtype in ("float32", "float64") for mask in ("", "bool", dtype)]
SOURCES += [gradient_source(dtype) for dtype in ("float32", "float64")]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with all kernels compiled, at once."""
    made = Host(tmp_path_factory.mktemp("attention"))
    made.cupy.compile(SOURCES)
    return made


@pytest.fixture
def rows(host: Host) -> AttentionRows:
    host.cupy.launched.clear()
    return AttentionRows(host.kernels.sources, np)


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * 2).astype(dtype).view(HostArray)


def expected(scores: Any, mask: Any, start: int | None) -> Any:
    given = mask if mask is None or mask.dtype.kind == "b" else np.asarray(mask, "float64")
    with np.errstate(all="ignore"):
        return ScoreRows(np).weights(np.array(scores, "float64"), given, start)


MASKS: dict[str, Any] = {
    "none": lambda _shape, _dtype: None,
    "of keys": lambda shape, _dtype: np.arange(shape[-1]) % 3 != 1,
    "of queries and keys": lambda shape, _dtype: drawn(shape[-2:], "float64") > -1,
    "added": lambda shape, dtype: drawn(shape, dtype, 1),
    "added to a batch": lambda shape, dtype: drawn((*shape[:-2], 1, shape[-1]), dtype, 1),
    "backwards": lambda shape, _dtype: (drawn(shape[-2:], "float64") > -1)[::-1, ::-1],
}


@each_case("dtype", ["float32", "float64"])
@each_case("shape", [(3, 5), (2, 1, 2, 40)])
@each_case("mask", MASKS)
@each_case("start", [None, 2])
def test_shares_are_numpys_by_one_launch(
    host: Host, rows: AttentionRows, dtype: str, shape: tuple[int, ...], mask: str, start: int | None
) -> None:
    scores, given = drawn(shape, dtype), MASKS[mask](shape, dtype)
    spread = None if given is None else np.broadcast_to(given, shape)
    wanted = expected(scores, spread, start)
    host.cupy.launched.clear()
    found = rows.weights(scores, spread, start)
    assert found is scores
    assert np.abs(found - wanted).max() <= 64 * np.finfo(dtype).eps
    assert host.cupy.launched == ["weights"]


def test_a_query_that_sees_no_key_has_no_shares(rows: AttentionRows) -> None:
    found = rows.weights(drawn((2, 5), "float32"), np.array([[True] * 5, [False] * 5]), None)
    assert found[1].tolist() == [0.0] * 5
    assert abs(found[0].sum() - 1) < 1e-6


@each_case("dtype", ["float32", "float64"])
def test_the_gradient_is_numpys_in_the_memory_of_its_operand(host: Host, rows: AttentionRows, dtype: str) -> None:
    weights = expected(drawn((2, 3, 40), dtype), None, 1).astype(dtype).view(HostArray)
    dweights, wanted = drawn((2, 3, 40), dtype, 2), drawn((2, 3, 40), dtype, 2).astype("float64")
    host.cupy.launched.clear()
    ScoreRows(np).gradient(wanted, weights.astype("float64"))
    rows.gradient(dweights, weights)
    assert np.abs(dweights - wanted).max() <= 64 * np.finfo(dtype).eps * np.abs(wanted).max()
    assert host.cupy.launched == ["rows"]


@each_case(
    ("scores", "mask"),
    [
        (drawn((2, 2, 2, 3, 5), "float32"), None),
        (drawn((3, 5), "float16"), None),
        (drawn((3, 5), "float32"), drawn((3, 5), "float16")),
        (drawn((0, 5), "float32"), None),
        (drawn((5, 3), "float32").T, None),
    ],
)
def test_other_scores_are_computed_as_before(host: Host, rows: AttentionRows, scores: Any, mask: Any) -> None:
    wanted = expected(scores, mask, 0)
    np.testing.assert_allclose(rows.weights(scores, mask, 0), wanted, rtol=1e-2, atol=1e-2)
    assert host.cupy.launched == []


def test_only_attention_has_such_rows(host: Host) -> None:
    metas = (Meta.of((2, 3, 4), "float32"),) * 3
    for name, expected_one in (("scaled_dot_product_attention", True), ("stack", False)):
        op = find(name)
        frozen = op.freeze({})
        call = KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)
        assert (attention_kernel(host.kernels.sources, np, call) is not None) == expected_one


def test_attention_with_such_rows_is_attention(host: Host) -> None:
    op = find("scaled_dot_product_attention")
    frozen = op.freeze({"is_causal": True})
    q, k, v = (drawn((2, 4, 8), "float32", n) for n in range(3))
    metas = tuple(Meta.of(x.shape, x.dtype) for x in (q, k, v))
    call = KernelCall(op, dict(frozen), metas, infer_once(op, metas, frozen), False, 0)
    kernel = attention_kernel(host.kernels.sources, np, call)
    assert kernel is not None
    host.cupy.launched.clear()
    found, wanted = np.zeros((2, 4, 8), "float32"), np.zeros((2, 4, 8), "float32")
    kernel(q, k, v, found)
    op.bind(np, 3, dict(frozen))(*map(np.asarray, (q, k, v)), wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert host.cupy.launched == ["weights"]


@pytest.mark.cupy
def test_the_kernels_compile() -> None:
    Compiler.here().compile(SOURCES, "--fmad=false")
