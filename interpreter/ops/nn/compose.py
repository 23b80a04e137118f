"""Neural network ops composed of other ops: for devices without a kernel of their own, and as references in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ...schema.opdef import Arrays, Attributes

# call(name, inputs, attributes) -> outputs
Call: TypeAlias = Callable[..., list[Any]]


def compose_relu(call: Call, inputs: Arrays, _attributes: Attributes) -> list[Any]:
    """maximum(x, 0)."""
    return call("maximum", [inputs[0], 0])


def compose_sigmoid(call: Call, inputs: Arrays, _attributes: Attributes) -> list[Any]:
    """1 / (1 + exp(-x))."""
    power = call("exp", call("negative", [inputs[0]]))
    return call("reciprocal", call("add", [*power, 1]))


def compose_silu(call: Call, inputs: Arrays, _attributes: Attributes) -> list[Any]:
    """x / (1 + exp(-x))."""
    power = call("exp", call("negative", [inputs[0]]))
    return call("divide", [inputs[0], *call("add", [*power, 1])])


def _shifted(call: Call, x: Any, reduced: Attributes) -> list[Any]:
    """x minus its maximum along the axis, or x where that maximum is -inf."""
    (largest,) = call("max", [x], reduced)
    (nothing,) = call("equal", [largest, float("-inf")])
    return call("subtract", [x, *call("where", [nothing, 0.0, largest])])


def _total(call: Call, powers: list[Any], reduced: Attributes) -> list[Any]:
    """The sum of the powers. It is at least exp(0); if all powers are 0, it is replaced by 1."""
    return call("maximum", [*call("sum", powers, reduced), 1])


def compose_softmax(call: Call, inputs: Arrays, attributes: Attributes) -> list[Any]:
    """exp(x - max) / sum(exp(x - max))."""
    reduced = {"axis": attributes["axis"], "keepdims": True}
    powers = call("exp", _shifted(call, inputs[0], reduced))
    return call("divide", [*powers, *_total(call, powers, reduced)])


def compose_log_softmax(call: Call, inputs: Arrays, attributes: Attributes) -> list[Any]:
    """(x - max) - log(sum(exp(x - max)))."""
    reduced = {"axis": attributes["axis"], "keepdims": True}
    shifted = _shifted(call, inputs[0], reduced)
    total = _total(call, call("exp", shifted), reduced)
    return call("subtract", [*shifted, *call("log", total)])


def compose_cross_entropy(call: Call, inputs: Arrays, _attributes: Attributes) -> list[Any]:
    """-mean of the log-softmax at the labels; needs the logits' shape."""
    logits, labels = inputs
    (scores,) = call("log_softmax", [logits], {"axis": -1})
    (hot,) = call("one_hot", [labels], {"num_classes": logits.shape[-1], "dtype": "bool"})
    picked = call("sum", call("where", [hot, scores, 0.0]), {"axis": -1})
    return call("negative", call("mean", picked))
