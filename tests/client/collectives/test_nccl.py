"""Collectives over NCCL, on the fake of CUDA's runtime and of NCCL: values, order, failures, other ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cli.daemon.health import reasons
from tensord.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tensord.interpreter.errors import CancelledError, KernelError
from tensord.streams.cuda.nccl_library import MAX_COMMUNICATORS

from ...behaviours.looking_inside import device_of, machine_of, until
from ...streams.fake_cuda.gpu import CUDARuntimeError, Gpu
from ...streams.fake_cuda.module import installed

WAIT = 20.0


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with installed(Gpu(seed=3, devices=4, memory=1 << 30, nccl=True)) as fake:
        yield fake


def machine(ranks: int = 2, **options: Any) -> td.Session:
    gpus = [{"name": f"cuda:{n}", "memory": "4MiB", **options} for n in range(ranks)]
    return td.connect("local", devices=["cpu:0", *gpus])


def spread(session: td.Session, values: list[Any]) -> list[td.Tensor]:
    return [session.asarray(value, device=f"cuda:{n}") for n, value in enumerate(values)]


def values_of(ranks: int, shape: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) * 9).astype(dtype) for _ in range(ranks)]


def ways_of(session: td.Session) -> list[str]:
    """The ways in which collectives were carried out: "nccl", "ring" or "direct"."""
    records = session.trace().records
    return [record.op.split(" of ")[0].split()[-1] for record in records if record.opcode == "CompleteCollective"]


def inner(gpu: Gpu) -> Any:
    """The fake of NCCL's module."""
    import cupy

    assert cupy._gpu is gpu
    return cupy.cuda.nccl


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_collectives_give_numpys_values(gpu: Gpu, ranks: int) -> None:
    """For shapes whose parts are even, uneven, and empty."""
    assert gpu.nccl
    with machine(ranks) as session:
        for shape in ((8, 3), (7, 2), (3,), (1, 5)):
            check_all(session, values_of(ranks, shape))
        assert ways_of(session) == ["nccl"] * 20
        assert session.trace().verify() == []
        assert session.stats()["collectives"]["all_reduce"]["count"] == 4


def check_all(session: td.Session, values: list[Any]) -> None:
    """Every collective on these values gives NumPy's results."""
    ranks = len(values)
    tensors = spread(session, values)
    for each in all_reduce(tensors):
        np.testing.assert_allclose(each.numpy(), sum(values), rtol=1e-5, atol=1e-5)
    for each in all_gather(tensors):
        assert np.array_equal(each.numpy(), np.concatenate(values))
    for each, part in zip(reduce_scatter(tensors), np.array_split(sum(values), ranks), strict=True):
        np.testing.assert_allclose(each.numpy(), part, rtol=1e-5, atol=1e-5)
    for each in broadcast(tensors[1], [f"cuda:{n}" for n in range(ranks)]):
        assert np.array_equal(each.numpy(), values[1])
    cut = [np.array_split(value, ranks) for value in values]
    for rank, each in enumerate(all_to_all(tensors, 0, 0)):
        assert np.array_equal(each.numpy(), np.concatenate([parts[rank] for parts in cut]))


@pytest.mark.parametrize(
    ("dtype", "reduction", "way"),
    [
        ("int32", "sum", "nccl"), ("uint8", "max", "nccl"), ("bool", "max", "nccl"), ("float16", "sum", "nccl"),
        ("complex64", "sum", "nccl"), ("float32", "max", "direct"), ("int16", "sum", "direct"),
    ],
)  # fmt: skip
def test_what_nccl_has_not_goes_as_without_it(gpu: Gpu, dtype: str, reduction: str, way: str) -> None:
    assert gpu.nccl
    values = [np.array([1, 0, 3], dtype), np.array([0, 0, 9], dtype)]
    with machine() as session:
        found = all_reduce(spread(session, values), reduction)
        merged = {"sum": np.add, "max": np.maximum}[reduction](*values)
        assert [each.tolist() for each in found] == [merged.tolist()] * 2
        assert ways_of(session) == [way]


def test_a_nan_is_the_largest_with_and_without_nccl(gpu: Gpu) -> None:
    assert gpu.nccl
    with machine() as session:
        found = all_reduce(spread(session, [np.array([np.nan, 1.0]), np.array([2.0, 3.0])]), "max")
        assert str(found[1].tolist()) == "[nan, 3.0]"


def test_parts_that_do_not_lie_packed_go_as_without_nccl_and_views_are_packed_first(gpu: Gpu) -> None:
    assert gpu.nccl
    values = values_of(2, (4, 6))
    with machine() as session:
        tensors = spread(session, values)
        assert np.array_equal(all_gather(tensors, 1)[0].numpy(), np.concatenate(values, 1))
        views = [each.T[::2] for each in tensors]
        assert np.array_equal(all_gather(views)[1].numpy(), np.concatenate([value.T[::2] for value in values]))
        assert ways_of(session) == ["direct", "nccl"]


def test_without_the_option_or_without_nccl_chunks_go_from_device_to_device(gpu: Gpu) -> None:
    values = values_of(2, (4,))
    with machine(nccl=False) as session:
        assert all_reduce(spread(session, values))[0].shape == (4,)
        assert ways_of(session) == ["direct"]
    gpu.nccl = False
    with installed(gpu), machine() as session:
        assert all_reduce(spread(session, values))[0].shape == (4,)
        assert ways_of(session) == ["direct"]


def test_two_sessions_with_collectives_in_opposite_orders_both_get_their_values(gpu: Gpu) -> None:
    """One communicator has cuda:0 first, the other one cuda:1."""
    gpus = [{"name": f"cuda:{n}", "memory": "4MiB"} for n in range(2)]
    with td.connect("local:both", devices=["cpu:0", *gpus]) as first, td.connect("local:both") as second:
        one = spread(first, [np.ones(4), np.ones(4)])
        two = [second.asarray(np.ones(4), device=f"cuda:{n}") for n in (1, 0)]
        found = []
        for _ in range(8):
            found += [all_reduce(one)[0], all_reduce(two)[0], all_reduce(two)[1], all_reduce(one)[1]]
        assert all(each.tolist() == [2.0] * 4 for each in found)
        assert len(inner(gpu)._alive) == 2


def test_communicators_are_kept_and_bounded(gpu: Gpu) -> None:
    with machine(4) as session:
        tensors = spread(session, values_of(4, (4,)))
        orders = [(a, b) for a in range(4) for b in range(4) if a != b]
        for a, b in orders:
            for _ in range(2):
                all_reduce([tensors[a], tensors[b]])[0].wait()
        assert len(orders) > MAX_COMMUNICATORS
        assert len(inner(gpu)._alive) == MAX_COMMUNICATORS
        assert len(inner(gpu)._cliques) == len(orders)
    assert inner(gpu)._alive == []


def stuck(gpu: Gpu, session: td.Session, tensors: list[td.Tensor], **options: Any) -> list[td.Tensor]:
    """A collective whose launch waits for one GPU, which is busy."""
    all_reduce(tensors)[0].wait()  # makes the communicator and its streams
    queue = joint_queue(session)
    before = queue.launched
    gpu.enqueue(queue, lambda: None, gpu.hold("it"))
    results = all_reduce(tensors, **options)
    session.flush()
    until(session, lambda: queue.launched >= before + 3)  # the hold, the launch, its event
    return results


def joint_queue(session: td.Session) -> Any:
    """The queue on cuda:1 that has NCCL's kernels."""
    library: Any = device_of(session, "cuda:1").library
    return library._streams["cuda:1"].queue


def test_what_nccl_notices_by_itself_fails_the_results_and_the_next_collective_works(gpu: Gpu) -> None:
    with machine() as session:
        tensors = spread(session, values_of(2, (4,)))
        results = stuck(gpu, session, tensors)
        (clique,) = inner(gpu)._alive
        clique.failure = "NCCL_ERROR_SYSTEM_ERROR: a cable"
        until(session, lambda: clique.gone == {0, 1})
        gpu.release("it")
        for each in results:
            with pytest.raises(KernelError, match="NCCL_ERROR_SYSTEM_ERROR: a cable"):
                (each + 1).wait(timeout=WAIT)
        assert np.allclose(all_reduce(tensors)[0].numpy(), sum(values_of(2, (4,))))
        assert len(inner(gpu)._cliques) == 2


def test_a_launch_that_hangs_without_a_timeout_is_reported(gpu: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    with machine() as session:
        results = stuck(gpu, session, spread(session, values_of(2, (4,))))
        machine_of(session).hang_after = 0.0
        machine_of(session).watch()
        (hang,) = machine_of(session).hung.values()
        assert str(hang["op"]).startswith("all_reduce 16 B nccl of 2 #")
        assert "test_nccl.py" in str(hang["location"])
        (reason,) = reasons(session._core.answers.query("status"))
        assert "timeout= would have" in reason.advice
        gpu.release("it")
        assert results[0].wait(timeout=WAIT).shape == (4,)
        machine_of(session).watch()
        assert machine_of(session).hung == {}
    told = [record.levelname for record in caplog.records if "running for long" in record.message]
    assert told == ["ERROR"]


def test_an_explanation_and_a_trace_say_that_nccl_carries_it_out(gpu: Gpu) -> None:
    assert gpu.nccl
    with machine() as session:
        one, other = spread(session, values_of(2, (4,)))
        rows = session.explain(collectives_of, one, other)
        assert [move["by"] for row in rows.rows for move in row["moves"]] == ["nccl", "nccl", ""]
        assert "all_gather of its operands, 32 B, by nccl" in str(rows)
        all_reduce([one, other])[0].wait(timeout=WAIT)
        trace = session.trace()
        (launch,) = [record for record in trace.records if record.opcode == "LaunchCollective"]
        assert "one launch by nccl on all 2 devices\n" in trace.why(launch)


def collectives_of(x: td.Tensor, y: td.Tensor) -> list[td.Tensor]:
    return all_gather(all_reduce([x, y])) + all_reduce([x, y], "max")


def test_a_timeout_ends_kernels_that_wait_for_ever(gpu: Gpu) -> None:
    with machine() as session:
        tensors = spread(session, values_of(2, (4,)))
        results = stuck(gpu, session, tensors, timeout=0.5)
        with pytest.raises(KernelError, match=r"has not ended on cuda:0 within 0\.5 s"):
            results[1].wait(timeout=WAIT)
        gpu.release("it")
        assert all_reduce(tensors)[0].wait(timeout=WAIT).shape == (4,)


def test_a_lost_gpu_fails_the_results_and_no_other_gpu_waits_for_it(gpu: Gpu) -> None:
    with machine(4) as session:
        tensors = spread(session, values_of(4, (4,)))
        results = stuck(gpu, session, tensors)
        gpu.broken[1] = CUDARuntimeError(700, "cudaErrorIllegalAddress", "an illegal memory access")
        with gpu.changed:
            for queue in gpu.queues.values():
                if queue.device == 1:
                    queue.items.clear()
        gpu.release("it")
        with pytest.raises(KernelError, match="cuda:1 is lost"):
            results[0].wait(timeout=WAIT)
        assert all_reduce([tensors[0], tensors[2]])[0].wait(timeout=WAIT).shape == (4,)
        with pytest.raises(KernelError, match="cuda:1 is lost"):
            all_reduce(tensors)[0].wait(timeout=WAIT)


def test_a_cancelled_collective_that_has_begun_goes_to_its_end_and_its_communicator_is_kept(gpu: Gpu) -> None:
    with machine() as session:
        tensors = spread(session, values_of(2, (4,)))
        results = stuck(gpu, session, tensors)
        session.cancel()
        gpu.release("it")
        with pytest.raises(CancelledError):
            results[0].wait(timeout=WAIT)
        session.restart()
        assert all_reduce(tensors)[0].wait(timeout=WAIT).shape == (4,)
        assert len(inner(gpu)._cliques) == 1


def test_a_failed_tensor_is_the_error_of_all_results_and_nothing_is_launched(gpu: Gpu) -> None:
    with machine() as session:
        good, bad = spread(session, [np.ones((2, 2)), np.zeros((2, 2))])
        bad = session.xp.linalg.inv(bad)
        for each in all_reduce([good, bad]):
            with pytest.raises(KernelError, match="inv"):
                each.wait(timeout=WAIT)
        assert inner(gpu)._cliques == {}


def test_a_machine_that_is_closed_in_the_middle_ends_the_launch(gpu: Gpu) -> None:
    session = machine()
    stuck(gpu, session, spread(session, values_of(2, (4,))))
    gpu.release("it")
    session.close()
    assert inner(gpu)._alive == []
