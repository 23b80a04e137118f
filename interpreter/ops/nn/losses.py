"""Losses over classes: one-hot labels and the cross entropy, whose kernels are in `cross_entropy`."""

from __future__ import annotations

from ...schema.attributes import check_count, check_dtype, check_float, check_int, optional
from ...schema.opdef import ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ...schema.scratch import scratch
from ...types import kinds
from ...types.meta import Meta, Metas, tensor_meta, tensor_metas
from ..elementwise import TRANSCENDENTAL_COST, slow_work
from ..rules.networks import cross_entropy_gradient_rule, cross_entropy_rule, one_hot_rule
from .compose import compose_cross_entropy
from .cross_entropy import (
    cross_entropy_direct,
    cross_entropy_grad_direct,
    cross_entropy_grad_kernel,
    cross_entropy_kernel,
)

# --- infer


def infer_one_hot(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shape of the labels, with a new last axis for the classes."""
    if attributes["num_classes"] < 0:
        raise ValueError(f"num_classes is negative: {attributes['num_classes']}")
    return (Meta.of((*tensor_meta(metas).shape, attributes["num_classes"]), attributes["dtype"]),)


def infer_cross_entropy_grad(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """Logits [..., c] with c >= 1, labels [...]."""
    logits, labels = tensor_metas(metas)
    if logits.ndim == 0 or labels.shape != logits.shape[:-1]:
        raise ValueError(f"expected logits [..., c] and labels [...], got {logits.shape} and {labels.shape}")
    if logits.shape[-1] == 0:
        raise ValueError("there are no classes")
    return (logits,)


def infer_cross_entropy(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Takes the operands of its gradient; the loss is a 0-d tensor of the logits' dtype."""
    infer_cross_entropy_grad(metas, attributes)
    return (Meta.of((), tensor_meta(metas).dtype),)


def cross_entropy_work(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The work of exp for every logit, although the result is small."""
    return TRANSCENDENTAL_COST * max((m.size for m in metas if isinstance(m, Meta)), default=0)


# --- the kernel of one-hot labels


def one_hot_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """A label outside the classes gives a row of zeros."""
    (labels,), (out,) = inputs, outputs
    out[...] = labels[..., None] == xp.arange(attributes["num_classes"])


# --- the table

_LOGITS_AND_LABELS = (kinds.REAL_FLOATING, kinds.INTEGER)
_COUNT_ATTRIBUTE = Attribute("count", optional(check_count), None)

define(
    name="one_hot",
    inputs=1,
    infer=infer_one_hot,
    summary="1 at each label and 0 elsewhere, along a new last axis; no 1 for a label outside the classes.",
    operands=("labels",),
    dtypes=(kinds.INTEGER,),
    attributes=(Attribute("num_classes", check_int), Attribute("dtype", check_dtype, "float32")),
    kernel=one_hot_kernel,
    scratch=scratch(elements=1),
    layouts=one_hot_rule,
)
define(
    name="cross_entropy",
    inputs=2,
    infer=infer_cross_entropy,
    summary="Mean loss of logits [..., c] against integer labels [...].",
    operands=("logits", "labels"),
    dtypes=_LOGITS_AND_LABELS,
    attributes=(_COUNT_ATTRIBUTE,),
    kernel=cross_entropy_kernel,
    scratch=scratch(operands=1),
    work=cross_entropy_work,
    direct=cross_entropy_direct,
    compose=compose_cross_entropy,
    layouts=cross_entropy_rule,
)
define(
    name="cross_entropy_grad",
    inputs=2,
    infer=infer_cross_entropy_grad,
    summary="Gradient of cross_entropy by the logits, times `scale`: (logits, labels).",
    operands=("logits", "labels"),
    dtypes=_LOGITS_AND_LABELS,
    attributes=(Attribute("scale", check_float, 1.0), _COUNT_ATTRIBUTE),
    kernel=cross_entropy_grad_kernel,
    elementwise=True,
    work=slow_work,
    direct=cross_entropy_grad_direct,
    layouts=cross_entropy_gradient_rule,
)
