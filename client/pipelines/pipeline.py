"""Pipeline parallelism: stages on several devices, and the microbatches of a batch one after the other.

No part of the machine schedules the stages. A stage starts as soon as the edges of its operands allow, in the order in
which its ops were issued, since its stream is in order. So the ops are issued in the order "one forward, one backward"
(`order`). Without a limit the first stage would run ahead with all microbatches, whose saved tensors would all have to
be kept. So a stage has credits (`most_alive`): the forward pass of microbatch m comes `after` the backward pass of
microbatch m - credits, which is one more edge.

Sources: D. Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, 2019 (1F1B); Y. Zhuang et
al., On Optimizing the Communication of Model Parallelism, 2023 (one more microbatch, which hides copies).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.layouts.layout import Split
from ...interpreter.layouts.placement import Placement
from ...interpreter.layouts.shares import cuts
from ..calls.checks import full_name, placement_of
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor

# From a result of the last stage, and the targets of its rows, to a value and the gradient by that result.
Loss: TypeAlias = Callable[..., tuple[Any, Tensor]]


class Stage(NamedTuple):
    """A stage of a pipeline, on a device or on a placement.

    `forward(x)` returns the stage's result, and any object that its backward pass needs. `backward(dy, saved)` returns
    the gradient by x; the first stage, whose gradient is not used, returns the last tensor that it makes. Gradients by
    parameters are added up in place, in the order of the microbatches. `layout`: that of x and dy on a placement; by
    default each device has some of the rows.
    """

    device: str | Placement
    forward: Callable[[Tensor], tuple[Tensor, Any]]
    backward: Callable[[Tensor, Any], Tensor]
    layout: Any = Split(0)

    def take(self, tensor: Tensor) -> Tensor:
        """Bring a tensor to the device of the stage.

        :param tensor: The tensor.
        :returns: The tensor there.
        """
        if isinstance(self.device, Placement):
            return tensor._core.global_calls.to_global(tensor, self.device, self.layout)
        return tensor.to_device(self.device)


class Pipeline:
    """Stages that work on the microbatches of a batch one after the other. Made by `tensord.pipeline`."""

    def __init__(self, stages: Sequence[Stage], microbatches: int) -> None:
        self.stages = tuple(checked(stages))
        if isinstance(microbatches, np.integer):
            microbatches = int(microbatches)
        if type(microbatches) is not int or microbatches < 1:
            raise located(MetadataError(f"pipeline: microbatches must be a positive int, not {microbatches!r}"))
        self.microbatches = microbatches

    def __call__(self, x: Tensor, *targets: Tensor, loss: Loss) -> list[Any]:
        """Run a batch forward and backward. Returns at once.

        :param x: The batch. x and the targets are split along their first axis, as by `numpy.array_split`.
        :param targets: Tensors with as many rows as x.
        :param loss: ``loss(y, *targets)`` returns a value, and the gradient by y, the last stage's result.
        :returns: The value of each microbatch.
        :raises MetadataError: There are fewer rows than microbatches.
        """
        if not callable(loss):
            raise located(MetadataTypeError(f"pipeline: loss must be a function, not {type(loss).__name__}"))
        rows = rows_of((x, *targets))
        if rows < self.microbatches:
            message = f"pipeline: {rows} rows are too few for {self.microbatches} microbatches"
            raise located(MetadataError(message))
        for stage in self.stages:
            check_there(x._core, stage.device)
        cut = [[each[begin : begin + size] for each in (x, *targets)] for begin, size in cuts(rows, self.microbatches)]
        batch = Batch(self.stages, cut, loss)
        for number, forward in order(len(self.stages), self.microbatches):
            batch.forward(number) if forward else batch.backward(number)
        return batch.values

    def __repr__(self) -> str:
        return f"<pipeline of {len(self.stages)} stages, {self.microbatches} microbatches>"


make_public(Pipeline, frozenset({"__call__"}))


class Batch:
    """One batch on its way through the stages. `values`: the losses of the microbatches that have reached the end."""

    def __init__(self, stages: Sequence[Stage], cut: Sequence[Sequence[Tensor]], loss: Loss) -> None:
        self.values: list[Any] = []
        self._stages = stages
        self._loss = loss
        self._targets = deque(targets for _, *targets in cut)
        self._arriving: list[deque[Tensor]] = [deque() for _ in stages]  # the inputs of each stage's forward passes
        self._returning: list[deque[Tensor]] = [deque() for _ in stages]  # the inputs of its backward passes
        self._begun = [0] * len(stages)
        self._saved: list[deque[Any]] = [deque() for _ in stages]
        self._passed: list[deque[Tensor]] = [deque() for _ in stages]  # the results of its backward passes
        self._arriving[0].extend(x for x, *_ in cut)

    def forward(self, number: int) -> None:
        """Issue the forward pass of a stage's next microbatch; for the last stage also the loss."""
        stage, alive = self._stages[number], most_alive(len(self._stages), number)
        x = stage.take(self._arriving[number].popleft())
        if self._begun[number] >= alive:
            (x,) = x._core.calls.call(x._core, "after", [x, self._passed[number].popleft()])
        self._begun[number] += 1
        y, saved = pair(stage.forward(x), f"forward of stage {number}", "a tensor, and an object for its backward pass")
        check_tensor(y, f"the first result of forward of stage {number}")
        self._saved[number].append(saved)
        if number < len(self._stages) - 1:
            self._arriving[number + 1].append(y)
            return
        targets = [stage.take(each) for each in self._targets.popleft()]
        value, dy = pair(self._loss(y, *targets), "loss", "a value, and the gradient by y")
        check_tensor(dy, "the second result of loss")
        self.values.append(value)
        self._returning[number].append(dy)

    def backward(self, number: int) -> None:
        """Issue the backward pass of a stage's next microbatch."""
        stage = self._stages[number]
        dy = stage.take(self._returning[number].popleft())
        dx = stage.backward(dy, self._saved[number].popleft())
        check_tensor(dx, f"the result of backward of stage {number}")
        self._passed[number].append(dx)
        if number:
            self._returning[number - 1].append(dx)


def order(stages: int, microbatches: int) -> Iterator[tuple[int, bool]]:
    """The passes of all stages, each with whether it is a forward pass. In each round a stage has one pass: backward if
    possible, else forward if one more microbatch may be alive there."""
    forward, backward = [0] * stages, [0] * stages
    while backward[0] < microbatches:
        arrived = [microbatches, *forward]
        returned = [*backward[1:], forward[-1]]
        for stage in range(stages):
            if backward[stage] < returned[stage]:
                backward[stage] += 1
                yield stage, False
            elif forward[stage] < arrived[stage] and forward[stage] - backward[stage] < most_alive(stages, stage):
                forward[stage] += 1
                yield stage, True


def most_alive(stages: int, number: int) -> int:
    """The most microbatches that may be alive on a stage: the number of stages from it to the end, plus one.

    Without the additional one, a stage would wait in each round for two copies: of its result to the next stage, and of
    a gradient back from there. The last stage waits for none.
    """
    behind = stages - number - 1
    return behind + 2 if behind else 1


def rows_of(operands: Sequence[Any]) -> int:
    """The common length of the first axes."""
    for operand in operands:
        if not isinstance(operand, Tensor):
            raise located(
                MetadataTypeError(f"pipeline: a batch must be a tensor, not {type(operand).__name__}; use asarray")
            )
    shapes = [each.shape for each in operands]
    rows = {shape[0] if shape else None for shape in shapes}
    if len(rows) > 1 or None in rows:
        shown = ", ".join(map(str, shapes))
        raise located(
            MetadataError(f"pipeline: batch and targets must have the same number of rows; their shapes are {shown}")
        )
    return int(rows.pop() or 0)


def check_there(core: Core, device: str | Placement) -> None:
    """MetadataError unless the session has the devices, on any node."""
    if isinstance(device, Placement):
        placement_of(core, device)
    else:
        full_name(core, device)


def pair(given: Any, whose: str, what: str) -> tuple[Any, Any]:
    """The pair that a function has returned; MetadataTypeError for anything else."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise located(MetadataTypeError(f"pipeline: {whose} must return a pair: {what}"))
    return given


def check_tensor(given: Any, what: str) -> None:
    """MetadataTypeError for a result of a function that is no tensor."""
    if not isinstance(given, Tensor):
        raise located(MetadataTypeError(f"pipeline: {what} must be a tensor, not {type(given).__name__}"))


def checked(stages: Sequence[Any]) -> list[Stage]:
    """The stages; MetadataTypeError for anything else."""
    if not isinstance(stages, Sequence) or not stages:
        raise located(MetadataTypeError("pipeline: stages must be a list of at least one tensord.Stage"))
    for stage in stages:
        if not isinstance(stage, Stage) or not callable(stage.forward) or not callable(stage.backward):
            message = (
                "pipeline: a stage must be tensord.Stage(device, forward, backward), with functions for the latter two"
            )
            raise located(MetadataTypeError(message))
        if not isinstance(stage.device, str | Placement):
            message = (
                f"pipeline: the device of a stage must be a name, or a placement, not {type(stage.device).__name__}"
            )
            raise located(MetadataTypeError(message))
    return list(stages)


def pipeline(stages: Sequence[Stage], microbatches: int) -> Pipeline:
    """Make a pipeline of stages, each on a device: ``losses = pipeline(stages, 16)(x, targets, loss=loss)``.

    The stages work at the same time, on one microbatch each: "one forward, one backward". On a stage with n stages
    after it, at most n + 2 microbatches are alive; on the last one, one. See docs/pipelines.md.

    :param stages: The stages in their order.
    :param microbatches: The number of parts into which a batch is split.
    :returns: The pipeline, which is called with a batch.
    :raises MetadataTypeError: A stage is no `Stage`.
    :raises MetadataError: The number of microbatches is below 1.
    """
    return Pipeline(stages, microbatches)
