"""Ops that users define: op by op, in routines, on global tensors, on devices of each kind, and with bad functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError, MetadataError, MetadataTypeError

from ...own_ops import own_ops_end
from ...streams.fake_cuda.gpu import Gpu
from ...streams.fake_cuda.module import installed

A = np.arange(6.0).reshape(2, 3)
T = td.Tensor


@pytest.fixture(autouse=True)
def _own_ops_end() -> Iterator[None]:
    with own_ops_end():
        yield


@pytest.fixture(params=["vm", "serial"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with td.connect("local", devices=["cpu:0", "sim:0", "sim:1"], engine=request.param) as opened:
        yield opened


@pytest.fixture
def machine() -> Iterator[Any]:
    with td.connect("local", devices=["cpu:0", "sim:0", "sim:1"]) as opened:
        yield opened


def scaled_sum() -> Any:
    @td.op(infer=lambda x, _y, *, scale: x)  # noqa: ARG005 - as `scale` of the function
    def scaled_sum(x: T, y: T, *, scale: float = 1.0) -> T:
        """The scaled sum."""
        return (x + y) * scale

    return scaled_sum


def test_an_op_is_called_as_its_function_is_and_by_its_name(session):
    op = scaled_sum()
    x, y = session.asarray(A), session.asarray(A + 1)
    wanted = (A + A + 1) * 2.0
    np.testing.assert_array_equal(op(x, y, scale=2.0).numpy(), wanted)
    np.testing.assert_array_equal(op(x, scale=2.0, y=y).numpy(), wanted)
    np.testing.assert_array_equal(op(A, A + 1, scale=2.0), wanted)  # arrays: the function itself
    (by_name,) = session.call(op.name, [x, y], {"scale": 2.0}, device="sim:1")
    assert by_name.device == "sim:1"
    np.testing.assert_array_equal(by_name.numpy(), wanted)
    assert op.name == "tests.scaled_sum"
    assert op.__doc__ == "The scaled sum."


def test_errors_of_operands_and_attributes_are_raised_at_the_call(session):
    op, x = scaled_sum(), session.asarray(A)
    for call, message in (
        (lambda: op(x), "takes 2 operands, not 1"),
        (lambda: op(x, x, scale="much"), "'scale': expected a number"),
        (lambda: op(x, x, scael=2.0), "unknown attribute 'scael'"),
        (lambda: op(x, y=x, z=x), "unexpected keyword argument 'z'"),
        (lambda: op(x, A), "ndarray is not an operand"),
        (lambda: op(x, 2.0), "expected a tensor"),
    ):
        with pytest.raises(MetadataError, match=message):
            call()


def test_an_elementwise_op_broadcasts_promotes_and_fills_what_it_is_given(session):
    @td.op(elementwise=True)
    def fma(x: T, y: T, z: T | float, *, out: Any = None) -> T:
        np.multiply(x, y, out=out)
        return np.add(out, z, out=out)

    x = session.asarray(A)
    np.testing.assert_array_equal(fma(x, x[0], 2.0).numpy(), A * A[0] + 2.0)
    target = session.asarray(np.zeros((2, 3)))
    assert fma(x, x, x, out=target) is target
    np.testing.assert_array_equal(target.numpy(), A * A + A)
    x2 = fma(x, x, x, out=x)  # the function reads operands after it began to write
    np.testing.assert_array_equal(x2.numpy(), A * A + A)


def test_several_results_optional_and_repeated_operands(session):
    @td.op(infer=lambda x, bias=None: (x, (x.shape[:-1], x.dtype)))  # noqa: ARG005
    def normed(x: T, bias: T | None = None) -> tuple[T, T]:
        x = x if bias is None else x + bias
        return x / 2, x.sum(-1)

    @td.op(infer=lambda *xs: ((sum(x.shape[0] for x in xs), 3), xs[0].dtype))
    def stack(*xs: T) -> T:
        return np.concatenate(xs)  # type: ignore[return-value]

    x = session.asarray(A)
    half, total = normed(x)
    np.testing.assert_array_equal(half.numpy(), A / 2)
    np.testing.assert_array_equal(total.numpy(), A.sum(-1))
    np.testing.assert_array_equal(normed(x, None)[1].numpy(), A.sum(-1))
    np.testing.assert_array_equal(normed(x, x)[1].numpy(), 2 * A.sum(-1))
    np.testing.assert_array_equal(stack(x, x, x).numpy(), np.concatenate([A] * 3))


def test_data_may_decide_a_shape(session):
    @td.op(infer=lambda _x: None, dynamic=True)
    def positive(x: T) -> T:
        return x[x > 0]

    x = session.asarray(A - 2)
    found = positive(x) * 2.0
    np.testing.assert_array_equal(found.numpy(), [2.0, 4.0, 6.0])


def test_attributes_of_each_type_arrive_as_they_were_given(session):
    seen: list[Any] = []

    @td.op(infer=lambda x, **_: x)
    def noting(
        x: T,
        *,
        n: int,
        flag: bool = True,
        name: str = "a",
        axes: tuple[int, ...] = (0, 1),
        dtype: np.dtype[Any] | None = None,
    ) -> T:
        seen.append((n, flag, name, axes, dtype))
        return x

    x = session.asarray(A)
    noting(x, n=1).wait()
    noting(x, n=2, flag=False, name="b", axes=(2,), dtype=np.dtype(np.float32)).wait()
    assert seen == [(1, True, "a", (0, 1), None), (2, False, "b", (2,), np.dtype(np.float32))]
    with pytest.raises(MetadataError, match="'n' is required"):
        noting(x)  # type: ignore[call-arg]


def test_routines_and_streams_run_own_ops(machine):
    op = scaled_sum()
    routine = machine.routine(lambda a, b: op(a, b, scale=3.0) + 1.0)
    x = machine.asarray(A)
    for n in range(3):
        np.testing.assert_array_equal(routine(x, x * n).numpy(), (A + A * n) * 3.0 + 1.0)


def test_a_global_tensor_is_boxed_unless_layouts_are_stated(machine):
    boxed = scaled_sum()

    @td.op(infer=lambda x, _w: x, layouts=[((td.split(0), td.broadcast), td.split(0))])
    def rows(x: T, w: T) -> T:
        return x * w.sum()

    @td.op(elementwise=True)
    def plus(x: T, y: T) -> T:
        return x + y

    both = td.placement(["sim:0", "sim:1"])
    whole = np.arange(8.0).reshape(4, 2)
    x = machine.global_tensor(whole, both, td.split(0))
    w = machine.global_tensor(np.ones(3), both, td.broadcast)
    np.testing.assert_array_equal(boxed(x, x).numpy(), whole * 2)
    boxed_too: Any = boxed(x, x)
    assert boxed_too.layout == (td.broadcast,)
    by_rows: Any = rows(x, w)
    assert by_rows.layout == (td.split(0),)
    np.testing.assert_array_equal(by_rows.numpy(), whole * 3)
    by_elements: Any = plus(x, x)
    assert by_elements.layout == (td.split(0),)
    np.testing.assert_array_equal(by_elements.numpy(), whole * 2)


def test_each_kind_of_device_may_have_a_kernel_and_others_fall_back():
    @td.op(infer=lambda x: x, kinds=["cpu"])
    def where(x: T) -> T:
        return x * 0 + 1

    @where.kernel("sim")
    def _(x: T, *, out: Any) -> None:
        out[...] = x * 0 + 2

    with installed(Gpu(seed=1, memory=1 << 30)), td.connect("local", devices=["cpu:0", "sim:0", "cuda:0"]) as session:
        found = {name: where(session.asarray(A, device=name)) for name in ("cpu:0", "sim:0", "cuda:0")}
        assert [one.numpy()[0, 0] for one in found.values()] == [1, 2, 1]
        assert found["cuda:0"].device == "cuda:0"  # computed on cpu:0, and brought back


def test_a_kernel_for_cupy_is_launched_on_the_gpu():
    kinds: list[str] = []

    @td.op(infer=lambda x: x)
    def doubled(x: T) -> T:
        kinds.append(type(x).__module__)
        return x + x

    with installed(Gpu(seed=1, memory=1 << 30)), td.connect("local", devices=["cpu:0", "cuda:0"]) as session:
        x = session.asarray(A, device="cuda:0")
        for _ in range(3):
            np.testing.assert_array_equal(doubled(x).numpy(), A * 2)
    assert all(kind != "numpy" for kind in kinds)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
@pytest.mark.parametrize("bounded", [True, False])
def test_a_function_warns_of_no_number_whatever_its_caller_has_set(machine, device, bounded):
    @td.op(infer=lambda x: x, bounded=bounded)
    def divided(x: T) -> T:
        return x / 0.0

    x = machine.asarray(np.ones(3), device=device)
    with np.errstate(all="raise"):
        assert divided(x).numpy().tolist() == [np.inf] * 3
        assert np.geterr()["divide"] == "raise"


BAD: dict[str, tuple[Any, str]] = {
    "shape": (lambda x: x[:1], "float64.1, 3.; its infer function said float64.2, 3."),
    "dtype": (lambda x: x.astype(np.float32), "float32.2, 3."),
    "no array": (lambda _x: 3, "is not an array, but int"),
    "several": (lambda x: (x, x), "is not an array, but tuple"),
    "raises": (lambda _x: 1 // 0, "ZeroDivisionError"),
    "writes": (lambda x: x.__setitem__(0, 3.0), "read-only"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_kernel_that_does_what_it_may_not_fails_alone(session, fault):
    function, message = BAD[fault]

    def bad(x: T) -> T:
        return function(x)

    op = td.op(infer=lambda x: x)(bad)
    x = session.asarray(A)
    y = op(x)
    with pytest.raises(KernelError, match=message):
        y.numpy()
    with pytest.raises(KernelError, match=message):
        (y + 1.0).numpy()
    np.testing.assert_array_equal(x.numpy(), A)


INFERS: dict[str, tuple[Any, str]] = {
    "raises": (lambda x: x.shape[9], "tuple index out of range"),
    "exits": (lambda _x: (_ for _ in ()).throw(RuntimeError("odd")), "RuntimeError: odd"),
    "nothing": (lambda _x: None, "or None with dynamic=True"),
    "list": (lambda x: [x], "a meta or"),
    "shape": (lambda x: ((-1,), x.dtype), "negative dimension"),
    "dtype": (lambda _x: ((1,), "datetime64[s]"), "not supported"),
}


@pytest.mark.parametrize("fault", INFERS)
def test_an_infer_function_that_does_what_it_may_not_is_an_error_at_the_call(session, fault):
    infer, message = INFERS[fault]

    def odd(x: T) -> T:
        return x

    op = td.op(infer=infer)(odd)
    x = session.asarray(A)
    with pytest.raises(MetadataError, match=message):
        op(x)
    np.testing.assert_array_equal((x + 1.0).numpy(), A + 1)


def test_a_kernel_that_never_returns_holds_up_its_stream_alone(machine):
    go, inside = threading.Event(), threading.Event()

    @td.op(infer=lambda x: x)
    def slow(x: T) -> T:
        inside.set()
        go.wait()
        return x

    x = machine.asarray(A, device="sim:0")
    y = slow(x)
    machine.flush()
    assert inside.wait(30)
    try:
        np.testing.assert_array_equal((machine.asarray(A, device="sim:1") + 1.0).numpy(), A + 1)
        assert not y.is_ready()
    finally:
        go.set()
    np.testing.assert_array_equal(y.numpy(), A)


# -- definitions -------------------------------------------------------------------------------------------------------


def test_a_name_is_taken_once_but_a_notebook_may_define_its_op_again(machine):
    first = scaled_sum()
    with pytest.raises(ValueError, match="defined twice"):
        scaled_sum()
    assert first.name == "tests.scaled_sum"

    def doubled(x: T) -> T:
        return x * 2.0

    def tripled(x: T) -> T:
        return x * 3.0

    def cell(function: Any) -> Any:
        function.__module__, function.__name__ = "__main__", "cell"
        return td.op(elementwise=True)(function)

    x = machine.asarray(A)
    one, again, other = cell(doubled), cell(doubled), cell(tripled)
    assert one.name == again.name == "__main__.cell"
    assert other.name == "__main__.cell.v2"
    np.testing.assert_array_equal(one(x).numpy(), A * 2)
    np.testing.assert_array_equal(other(x).numpy(), A * 3)


def times(factor: float) -> Any:
    """A kernel of one operand."""

    def kernel(x: T) -> T:
        return x * factor

    return kernel


def test_a_notebook_may_run_a_cell_with_kernels_again(machine):
    """Comparing it with the first one must not fix the second one's digest before its kernels are there."""
    factors, ops = (2.0, 2.0, 3.0), []
    for factor in factors:

        def cell(x: T) -> T:
            return x

        cell.__module__ = "__main__"
        op = td.op(infer=lambda x: x)(cell)
        op.kernel("sim")(times(factor))
        ops.append(op)
    x = machine.asarray(A, device="sim:0")
    for op, factor in zip(ops, factors, strict=True):
        np.testing.assert_array_equal(op(x).numpy(), A * factor)
    assert [op.name for op in ops] == ["__main__.cell", "__main__.cell.v2", "__main__.cell.v3"]


DEFINITIONS: dict[str, tuple[Any, Any, str]] = {
    "no infer": (lambda x: x, {}, "give infer="),
    "name": (lambda x: x, {"infer": id, "name": "add"}, "like package.name"),
    "kinds": (lambda x: x, {"infer": id, "kinds": "cuda"}, "a list of kinds"),
    "layouts": (lambda x: x, {"infer": id, "layouts": [(td.split(0), td.split(0))]}, "layouts are a list"),
    "layouts of two": (lambda x: x, {"infer": id, "layouts": [((td.split(0),) * 2, td.split(0))]}, "1 operands"),
    "default": (lambda x=1: x, {"infer": id}, "come after a"),
    "keywords": (lambda x, **more: (x, more), {"infer": id}, r"\*\* names none"),
    "no type": (lambda x, *, scale=1.0: (x, scale), {"infer": id}, "needs an annotation"),
}


@pytest.mark.parametrize("fault", DEFINITIONS)
def test_what_no_op_can_be_is_refused_where_it_is_defined(fault):
    function, stated, message = DEFINITIONS[fault]
    with pytest.raises((TypeError, ValueError), match=message):
        td.op(**{"name": "package.f", **stated})(function)


def test_a_type_that_cannot_travel_and_a_late_kernel_are_refused(machine):
    def holding(x: T, *, what: dict[str, int]) -> T:
        return x[: len(what)]

    with pytest.raises(TypeError, match="are not supported"):
        td.op(infer=lambda x, **_: x)(holding)
    op = scaled_sum()
    with pytest.raises(TypeError, match="takes the operands and attributes"):
        op.kernel("sim")(lambda x: x)
    op(machine.asarray(A), machine.asarray(A)).wait()
    with pytest.raises(ValueError, match="too late"):
        op.kernel("sim")(plus_scaled)


def plus_scaled(x: T, y: T, *, scale: float = 1.0) -> T:
    return x + y * scale


def test_the_digest_is_that_of_version_signature_and_sources():
    def made(function: Any, **stated: Any) -> str:
        with own_ops_end():
            digest: str = td.op(name="package.f", **stated)(function).digest
            return digest

    infer = scaled_sum  # any function
    assert made(plus_scaled, infer=infer) == made(plus_scaled, infer=infer)
    others = [
        made(plus_scaled, infer=infer, version="2"),
        made(plus_scaled, infer=test_the_digest_is_that_of_version_signature_and_sources),
        made(lambda x, y: x + y, infer=infer),
        made(plus_scaled, infer=infer, dynamic=True),
    ]
    assert len({made(plus_scaled, infer=infer), *others}) == 5


def test_a_daemon_with_the_same_op_executes_it(machine):
    op, x = scaled_sum(), machine.asarray(A)
    machine._core.outbox.transport.own_ops = {op.name: (op.version, op.digest)}
    np.testing.assert_array_equal(op(x, x).numpy(), A * 2)


@pytest.mark.parametrize("there", ["nothing", "another version"])
def test_a_daemon_without_the_op_or_with_another_one_is_told_of_at_the_call(machine, there):
    op, x = scaled_sum(), machine.asarray(A)
    machine._core.outbox.transport.own_ops = {} if there == "nothing" else {op.name: ("1.0", "0" * 16)}
    message = "does not have this op: install tests" if there == "nothing" else r"the daemon has 1.0 \(0{16}\)"
    for call in (
        lambda: op(x, x),
        lambda: machine.call(op.name, [x, x]),
        lambda: machine.routine(lambda a: op(a, a))(x),
    ):
        with pytest.raises(MetadataError, match=message):
            call()


def test_a_compiled_function_is_taken_by_the_python_function_behind_it(machine):
    def plain(x: T, y: T) -> T:
        return x * y

    class Compiled(SimpleNamespace):
        def __call__(self, *arrays: Any) -> Any:
            return self.py_func(*arrays)

    op = td.op(infer=lambda x, _y: x)(Compiled(py_func=plain))
    x = machine.asarray(A)
    np.testing.assert_array_equal(op(x, x).numpy(), A * A)
    with pytest.raises(MetadataTypeError, match="operands, not 1"):
        op(x)
