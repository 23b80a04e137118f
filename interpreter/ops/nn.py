"""Neural network ops: activations, their gradients, and the cross entropy. The kernels are in `nn_kernels`."""

from __future__ import annotations

from ..attributes import axis_attribute, check_dtype, check_float, check_int
from ..axes import normal_axis, require_kind, tensor, tensors
from ..meta import Meta, OperandMeta
from ..opdef import Attribute, Attributes, Compose, Kernel, OpDef, OutputMetas, Work, define
from . import nn_compose, nn_kernels
from .elementwise import SLOW, slow_work

_LAST_AXIS = axis_attribute(-1)

# --- infer


def infer_real(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """A tensor of real numbers; the result has its meta."""
    x = tensor(metas)
    require_kind(x, "iuf", "real numbers")
    return (x,)


def infer_float(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """A tensor of floats with the axis, if the op has one; the result has its meta."""
    x = tensor(metas)
    require_kind(x, "f", "real floating-point dtypes")
    if "axis" in attributes:
        normal_axis(attributes["axis"], x.ndim)
    return (x,)


def infer_one_hot(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """Integer labels; the classes are a new last axis."""
    labels = tensor(metas)
    require_kind(labels, "iu", "integer labels")
    if attributes["num_classes"] < 0:
        raise ValueError(f"num_classes is negative: {attributes['num_classes']}")
    return (Meta.of((*labels.shape, attributes["num_classes"]), attributes["dtype"]),)


def infer_cross_entropy_grad(metas: tuple[OperandMeta, ...], _attributes: Attributes) -> OutputMetas:
    """Logits [n, c] of floats with c >= 1, labels [n] of integers."""
    logits, labels = tensors(metas)
    require_kind(logits, "f", "logits of a real floating-point dtype")
    require_kind(labels, "iu", "integer labels")
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"expected logits [n, c] and labels [n], got {logits.shape} and {labels.shape}")
    if logits.shape[1] == 0:
        raise ValueError("there are no classes")
    return (logits,)


def infer_cross_entropy(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """As its gradient; the loss is a 0-d tensor of the logits' dtype."""
    infer_cross_entropy_grad(metas, attributes)
    return (Meta.of((), tensor(metas).dtype),)


def infer_gradient(metas: tuple[OperandMeta, ...], attributes: Attributes) -> OutputMetas:
    """dy and y agree in shape and dtype; nothing broadcasts."""
    dy, y = tensors(metas)
    if dy is not y:
        raise ValueError(f"dy and y differ: {dy} and {y}")
    return infer_float((dy,), attributes)


def cross_entropy_work(metas: tuple[OperandMeta, ...], _outputs: OutputMetas, _attributes: Attributes) -> int:
    """exp of every logit, though the result is small."""
    return SLOW * max((m.size for m in metas if isinstance(m, Meta)), default=0)


# --- the table


def _activation(
    name: str, kernel: Kernel, summary: str, *attributes: Attribute, compose: Compose | None = None
) -> None:
    define(
        OpDef(
            name=name,
            inputs=1,
            infer=infer_float,
            summary=summary,
            attributes=attributes,
            kernel=kernel,
            elementwise=True,
            work=slow_work,
            compose=compose,
        )
    )


def _gradient(name: str, kernel: Kernel, summary: str, *attributes: Attribute, work: Work | None = None) -> None:
    define(
        OpDef(
            name=name,
            inputs=2,
            infer=infer_gradient,
            summary=summary,
            attributes=attributes,
            kernel=kernel,
            elementwise=True,
            work=work,
        )
    )


define(
    OpDef(
        name="relu",
        inputs=1,
        infer=infer_real,
        summary="The larger of x and 0.",
        kernel=nn_kernels.relu_kernel,
        elementwise=True,
        compose=nn_compose.compose_relu,
    )
)
_activation("sigmoid", nn_kernels.sigmoid_kernel, "1 / (1 + exp(-x)).", compose=nn_compose.compose_sigmoid)
_activation("silu", nn_kernels.silu_kernel, "x * sigmoid(x).", compose=nn_compose.compose_silu)
_activation("gelu", nn_kernels.gelu_kernel, "x * Phi(x) in its tanh form.")
_activation(
    "softmax",
    nn_kernels.softmax_kernel,
    "exp(x), scaled to sum 1 along `axis`.",
    _LAST_AXIS,
    compose=nn_compose.compose_softmax,
)
_activation(
    "log_softmax", nn_kernels.log_softmax_kernel, "log(softmax(x)).", _LAST_AXIS, compose=nn_compose.compose_log_softmax
)
_gradient(
    "relu_grad", nn_kernels.relu_grad_kernel, "Gradient of relu: (dy, y), where y may be relu's input or its result."
)
_gradient("sigmoid_grad", nn_kernels.sigmoid_grad_kernel, "Gradient of sigmoid: (dy, y), y being its result.")
_gradient("tanh_grad", nn_kernels.tanh_grad_kernel, "Gradient of tanh: (dy, y), y being its result.")
_gradient(
    "softmax_grad", nn_kernels.softmax_grad_kernel, "Gradient of softmax: (dy, y), y being its result.", _LAST_AXIS
)
_gradient(
    "log_softmax_grad",
    nn_kernels.log_softmax_grad_kernel,
    "Gradient of log_softmax: (dy, y), y being its result.",
    _LAST_AXIS,
    work=slow_work,
)
define(
    OpDef(
        name="one_hot",
        inputs=1,
        infer=infer_one_hot,
        summary="1 at each label and 0 elsewhere, along a new last axis; no 1 for a label outside the classes.",
        attributes=(Attribute("num_classes", check_int), Attribute("dtype", check_dtype, "float32")),
        kernel=nn_kernels.one_hot_kernel,
    )
)
define(
    OpDef(
        name="cross_entropy",
        inputs=2,
        infer=infer_cross_entropy,
        summary="Mean loss of logits [n, c] against integer labels [n].",
        kernel=nn_kernels.cross_entropy_kernel,
        work=cross_entropy_work,
        compose=nn_compose.compose_cross_entropy,
    )
)
define(
    OpDef(
        name="cross_entropy_grad",
        inputs=2,
        infer=infer_cross_entropy_grad,
        summary="Gradient of cross_entropy by the logits, times `scale`: (logits, labels).",
        attributes=(Attribute("scale", check_float, 1.0),),
        kernel=nn_kernels.cross_entropy_grad_kernel,
        elementwise=True,
        work=slow_work,
    )
)
