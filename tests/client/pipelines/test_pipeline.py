"""Pipelines: the values are those of the whole batch, and the order is "one forward, one backward"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import KernelError, MetadataError, MetadataTypeError

from ...behaviours.looking_inside import held, until

SIMS = ["sim:0", "sim:1", "sim:2", "sim:3"]


@pytest.fixture
def session() -> Iterator[Any]:
    with td.connect("local", devices=["cpu:0", *SIMS]) as one:
        yield one


class Layer:
    """y = tanh(x w) on one device, with its gradient."""

    def __init__(self, session: Any, device: Any, seed: int) -> None:
        self.xp = session.xp
        self.w = session.asarray(np.random.default_rng(seed).normal(size=(3, 3)), device=device)
        self.gradient = self.xp.zeros((3, 3), device=device)

    def forward(self, x: Any) -> tuple[Any, Any]:
        y = self.xp.tanh(x @ self.w)
        return y, (x, y)

    def backward(self, dy: Any, saved: Any) -> Any:
        x, y = saved
        before = dy * (1.0 - y * y)
        self.gradient += x.T @ before
        return before @ self.w.T


def layers_of(session: Any, count: int) -> list[Layer]:
    return [Layer(session, device, seed) for seed, device in enumerate(SIMS[:count])]


def stages_of(layers: Sequence[Layer]) -> list[td.Stage]:
    return [td.Stage(layer.w.device, layer.forward, layer.backward) for layer in layers]


def squares(y: Any, target: Any) -> tuple[Any, Any]:
    error = y - target
    return (error * error).sum(), 2.0 * error


def data(session: Any, rows: int) -> tuple[Any, Any]:
    draws = np.random.default_rng(9)
    return session.asarray(draws.normal(size=(rows, 3))), session.asarray(draws.normal(size=(rows, 3)))


def in_numpy(layers: list[Layer], x: Any, target: Any) -> tuple[float, list[Any]]:
    """The loss of the whole batch, and the gradients."""
    values, weights = [x], [layer.w.numpy() for layer in layers]
    for w in weights:
        values.append(np.tanh(values[-1] @ w))
    error, gradients = values[-1] - target, []
    dy = 2.0 * error
    for w, given, y in zip(weights[::-1], values[-2::-1], values[::-1], strict=False):
        before = dy * (1 - y * y)
        gradients.append(given.T @ before)
        dy = before @ w.T
    return float((error**2).sum()), gradients[::-1]


@pytest.mark.parametrize(("count", "microbatches", "rows"), [(1, 1, 1), (2, 3, 10), (4, 7, 16), (3, 2, 2)])
def test_gradients_are_those_of_the_whole_batch(session: Any, count: int, microbatches: int, rows: int) -> None:
    layers = layers_of(session, count)
    x, target = data(session, rows)
    losses = td.pipeline(stages_of(layers), microbatches)(x, target, loss=squares)
    expected, gradients = in_numpy(layers, x.numpy(), target.numpy())
    assert len(losses) == microbatches
    np.testing.assert_allclose(sum(float(each) for each in losses), expected)
    for layer, gradient in zip(layers, gradients, strict=True):
        np.testing.assert_allclose(layer.gradient.numpy(), gradient)


def test_the_same_program_has_the_same_bits(session: Any) -> None:
    found = set()
    for _ in range(3):
        layers = layers_of(session, 3)
        x, target = data(session, 11)
        losses = td.pipeline(stages_of(layers), 4)(x, target, loss=squares)
        found.add(b"".join(each.numpy().tobytes() for each in [*losses, *(layer.gradient for layer in layers)]))
    assert len(found) == 1


class Counted(Layer):
    """A layer whose forward pass has an op that no other pass has."""

    def forward(self, x: Any) -> tuple[Any, Any]:
        y, saved = super().forward(x)
        return self.xp.tan(y), saved


def forward_passes(session: Any, device: str) -> int:
    records = session.trace().records
    return sum(each.op == "tan" and each.device == device and each.status == "DONE" for each in records)


def test_a_stage_runs_as_far_ahead_as_it_has_credits(session: Any) -> None:
    """The last stage stands still, so no microbatch comes back: each other stage goes forward with one more microbatch
    than there are stages from it to the end.
    """
    layers = [Counted(session, device, seed) for seed, device in enumerate(SIMS)]
    x, target = data(session, 32)
    with held(session, "sim:3", "compute"):
        losses = td.pipeline(stages_of(layers), 16)(x, target, loss=squares)
        session.flush()
        for stage, device in enumerate(SIMS[:3]):
            until(session, lambda: forward_passes(session, device) >= 5 - stage)  # noqa: B023 - called before it changes
        for stage, device in enumerate(SIMS[:3]):
            session.xp.ones(1, device=device).wait()  # all passes that could run have run
            assert forward_passes(session, device) == 5 - stage
    assert len([each.item() for each in losses]) == 16


def test_a_failure_reaches_the_microbatches_that_it_would_let_in_and_no_earlier_ones(session: Any) -> None:
    layers = layers_of(session, 1)
    x, target = data(session, 9)
    x[3:6] = 0.0

    def forward(x: Any) -> tuple[Any, Any]:
        return session.xp.linalg.inv(x), (x, x)

    losses = td.pipeline([td.Stage("sim:0", forward, layers[0].backward)], 3)(x, target, loss=squares)
    assert isinstance(losses[0].item(), float)
    for loss in losses[1:]:
        with pytest.raises(KernelError, match="inv"):
            loss.item()


def kept(x: Any) -> tuple[Any, Any]:
    return x, x


def first(x: Any, *_: Any) -> Any:
    return x


def number(x: Any) -> tuple[Any, Any]:
    return 1.0, x


def nothing(*_: Any) -> Any:
    return None


FINE = td.Stage("sim:0", kept, first)


class Bad(NamedTuple):
    message: str
    stages: Any = (FINE,)
    microbatches: Any = 2
    rows: int = 4
    targets: int = 4
    loss: Any = squares


WRONG = [
    Bad("at least one", stages=[]),
    Bad(r"tensord\.Stage", stages=[first]),
    Bad("functions", stages=[td.Stage("sim:0", kept, 3)]),  # type: ignore[arg-type]
    Bad("unknown device", stages=[td.Stage("sim:9", kept, first)]),
    Bad("forward of stage 0", stages=[td.Stage("sim:0", first, first)]),
    Bad("backward of stage 0", stages=[td.Stage("sim:0", kept, nothing)]),
    Bad("first result of forward of stage 0 must be a tensor, not float", stages=[td.Stage("sim:0", number, first)]),
    Bad("loss must return a pair", loss=first),
    Bad("second result of loss must be a tensor, not float", loss=lambda y, _: (y, 1.0)),
    Bad("loss must be a function, not NoneType", loss=None),
    Bad("device of a stage must be a name, or a placement, not list", stages=[td.Stage(["sim:0"], kept, first)]),  # type: ignore[arg-type]
    Bad("positive", microbatches=0),
    Bad("positive", microbatches=2.0),
    Bad("too few", microbatches=5),
    Bad("the same number of rows", targets=3),
]


@pytest.mark.parametrize("case", WRONG, ids=[case.message for case in WRONG])
def test_what_does_not_fit_is_an_error_at_the_call(session: Any, case: Bad) -> None:
    (x, _), (_, target) = data(session, case.rows), data(session, case.targets)
    with pytest.raises((MetadataError, MetadataTypeError), match=case.message):
        td.pipeline(case.stages, case.microbatches)(x, target, loss=case.loss)


def test_a_device_that_is_none_is_found_before_any_stage_begins(session: Any) -> None:
    x, target = data(session, 4)
    begun: list[Any] = []

    def noted(x: Any) -> tuple[Any, Any]:
        begun.append(x)
        return x, x

    seen = td.Stage("sim:0", noted, first)
    for device in ("sim:9", td.placement(["sim:9"])):
        with pytest.raises(MetadataError, match="unknown device 'sim:9'"):
            td.pipeline([seen, td.Stage(device, kept, first)], 2)(x, target, loss=squares)
    assert not begun


def test_microbatches_may_be_numpys(session: Any) -> None:
    layers = layers_of(session, 2)
    x, target = data(session, 4)
    assert len(td.pipeline(stages_of(layers), np.int64(2))(x, target, loss=squares)) == 2  # type: ignore[arg-type]


def test_a_batch_is_a_tensor() -> None:
    with pytest.raises(MetadataTypeError, match="asarray"):
        td.pipeline([FINE], 1)([1.0], loss=squares)  # type: ignore[arg-type]


def test_a_pipeline_is_captured_whole(session: Any) -> None:
    layers, plain = layers_of(session, 2), layers_of(session, 2)
    x, target = data(session, 6)
    run = session.routine(lambda x, target: td.pipeline(stages_of(layers), 3)(x, target, loss=squares))
    for _ in range(3):
        captured, op_by_op = run(x, target), td.pipeline(stages_of(plain), 3)(x, target, loss=squares)
        assert [each.item() for each in captured] == [each.item() for each in op_by_op]
    assert layers[0].gradient.tolist() == plain[0].gradient.tolist()


def test_a_stage_may_be_on_several_devices(session: Any) -> None:
    """Each replica has some of the rows, and the parameters; gradients are summed up over all replicas."""
    pair = td.placement(SIMS[:2])
    first, last = Layer(session, pair, 0), Layer(session, "sim:2", 1)
    alone = layers_of(session, 2)
    x, target = data(session, 10)
    losses = td.pipeline(stages_of([first, last]), 3)(x, target, loss=squares)
    expected = td.pipeline(stages_of(alone), 3)(x, target, loss=squares)
    np.testing.assert_allclose([each.item() for each in losses], [each.item() for each in expected])
    for layer, same in zip((first, last), alone, strict=True):
        np.testing.assert_allclose(layer.gradient.numpy(), same.gradient.numpy())
