"""Pipeline parallelism: stages on several devices, and the microbatches of a batch one behind the other.

There is no schedule. The ops of all microbatches are issued at once, one microbatch after the other, and the edges of
their operands let each stage work as soon as it has something to do. Alone, these edges would let the first stage run
ahead with all microbatches, whose saved tensors all have to be kept. So a stage has *credits*: as many microbatches may
be alive on it as there are stages from there to the end. Its forward pass of a microbatch comes `after` its backward
pass of the one so many before, which is one more edge. What follows is the order "one forward, one backward".

Source: D. Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, 2019 (1F1B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from ...interpreter.errors import MetadataError, MetadataTypeError
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor

# From a result of the last stage, and the targets of its rows, to a value and the gradient by that result.
Loss: TypeAlias = Callable[..., tuple[Any, Tensor]]


class Stage(NamedTuple):
    """One stage of a pipeline, on a device.

    `forward(x)` gives the stage's result, and what its backward pass needs besides: any object. `backward(dy, saved)`
    gives the gradient by x; the first stage, which nobody asks for that, gives any tensor that it makes at last.
    Gradients by parameters are added up in place, in the order of the microbatches.
    """

    device: str
    forward: Callable[[Tensor], tuple[Tensor, Any]]
    backward: Callable[[Tensor, Any], Tensor]


class Pipeline:
    """Stages through which the microbatches of a batch follow each other. Made by `tensord.pipeline`."""

    def __init__(self, stages: Sequence[Stage], microbatches: int) -> None:
        self.stages = tuple(checked(stages))
        if type(microbatches) is not int or microbatches < 1:
            raise located(MetadataError(f"pipeline: microbatches are a positive int, not {microbatches!r}"))
        self.microbatches = microbatches

    def __call__(self, x: Tensor, *targets: Tensor, loss: Loss) -> list[Any]:
        """Run a batch forward and backward; returns the loss of each microbatch, at once.

        x and the targets are cut alike along their first axis, as numpy.array_split cuts. `loss(y, *targets)` gives a
        value, which is kept, and the gradient by y, the last stage's result. MetadataError for fewer rows than
        microbatches.
        """
        rows = rows_of((x, *targets))
        if rows < self.microbatches:
            message = f"pipeline: {rows} rows are too few for {self.microbatches} microbatches"
            raise located(MetadataError(message))
        passed: list[list[Tensor]] = [[] for _ in self.stages]  # of each stage, what its backward passes have given
        return [
            self._run([each[piece] for each in (x, *targets)], loss, passed)
            for piece in pieces(rows, self.microbatches)
        ]

    def _run(self, operands: list[Tensor], loss: Loss, passed: list[list[Tensor]]) -> Any:
        """Run one microbatch forward and backward."""
        y, *targets = operands
        saved = []
        for number, stage in enumerate(self.stages):
            x = admitted(y.to_device(stage.device), passed[number], len(self.stages) - number)
            y, kept = pair(stage.forward(x), f"forward of stage {number}", "a tensor, and what its backward needs")
            saved.append(kept)
        home = self.stages[-1].device
        value, dy = pair(loss(y, *[each.to_device(home) for each in targets]), "loss", "a value, and the gradient by y")
        for number in reversed(range(len(self.stages))):
            stage = self.stages[number]
            dy = stage.backward(dy.to_device(stage.device), saved.pop())
            if not isinstance(dy, Tensor):
                message = f"pipeline: backward of stage {number} gives a tensor, not {type(dy).__name__}"
                raise located(MetadataTypeError(message))
            passed[number].append(dy)
        return value

    def __repr__(self) -> str:
        return f"<pipeline of {len(self.stages)} stages, {self.microbatches} microbatches>"


make_public(Pipeline, frozenset({"__call__"}))


def admitted(x: Tensor, passed: list[Tensor], alive: int) -> Tensor:
    """x, once at most so many microbatches are `alive` on its stage; waits for the oldest of `passed`, and drops it."""
    if len(passed) < alive:
        return x
    return x._core.calls.call(x._core, "after", [x, passed.pop(0)])[0]


def pieces(rows: int, count: int) -> list[slice]:
    """The rows of each microbatch."""
    least, more = divmod(rows, count)
    ends = [least * n + min(n, more) for n in range(count + 1)]
    return [slice(*each) for each in pairwise(ends)]


def rows_of(operands: Sequence[Any]) -> int:
    """The length of the first axis that all have."""
    for each in operands:
        if not isinstance(each, Tensor):
            raise located(MetadataTypeError(f"pipeline: a batch is a tensor, not {type(each).__name__}; use asarray"))
    shapes = [each.shape for each in operands]
    rows = {shape[0] if shape else None for shape in shapes}
    if len(rows) > 1 or None in rows:
        shown = ", ".join(map(str, shapes))
        raise located(MetadataError(f"pipeline: batch and targets have equally many rows; their shapes are {shown}"))
    return int(rows.pop() or 0)


def pair(given: Any, whose: str, what: str) -> tuple[Any, Any]:
    """What a function has to give; MetadataTypeError for anything else."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise located(MetadataTypeError(f"pipeline: {whose} gives a pair: {what}"))
    return given


def checked(stages: Sequence[Any]) -> list[Stage]:
    """The stages; MetadataTypeError for what is none."""
    if not isinstance(stages, Sequence) or not stages:
        raise located(MetadataTypeError("pipeline: stages are a list of at least one tensord.Stage"))
    for each in stages:
        if not isinstance(each, Stage) or not callable(each.forward) or not callable(each.backward):
            message = "pipeline: a stage is tensord.Stage(device, forward, backward), with functions for the latter two"
            raise located(MetadataTypeError(message))
    return list(stages)


def pipeline(stages: Sequence[Stage], microbatches: int) -> Pipeline:
    """Make a pipeline of stages, each on a device: `losses = pipeline(stages, 16)(x, targets, loss=loss)`.

    Its stages work at the same time, on one microbatch each: "one forward, one backward", and as many microbatches may
    be alive on a stage as there are stages from there on. MetadataTypeError for what is no `Stage`, MetadataError for a
    number of microbatches below 1. See docs/pipelines.md.
    """
    return Pipeline(stages, microbatches)
