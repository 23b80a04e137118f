"""`session.nn`: functions for neural networks, and their gradients for a hand-written backward pass.

A gradient function takes dy, the gradient of a scalar with respect to the result, and returns the gradients with
respect to the operands. The tensors of a call have one real floating-point dtype (labels, indices and masks aside);
sums of float16 are computed in float32. Each call is one instruction and never waits. Functions of the array API
standard, such as `tanh`, are in `session.xp`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ...interpreter.errors import MetadataTypeError
from ..locations.locations import located
from ..tensor.hints import LAYERS, add_hints, present
from ..tensor.tensor import Tensor
from .elementwise import operand
from .functions import Functions

Pair: TypeAlias = int | tuple[int, int]  # height and width; an int stands for both
Axes: TypeAlias = int | tuple[int, ...]


class LayerNormGradients(NamedTuple):
    """Gradients by x, weight and bias."""

    dx: Tensor
    dweight: Tensor
    dbias: Tensor


class RmsNormGradients(NamedTuple):
    """Gradients by x and weight."""

    dx: Tensor
    dweight: Tensor


class ConvolutionGradients(NamedTuple):
    """Gradients by x, weight and bias."""

    dx: Tensor
    dweight: Tensor
    dbias: Tensor


class AttentionGradients(NamedTuple):
    """Gradients by queries, keys and values."""

    dq: Tensor
    dk: Tensor
    dv: Tensor


class Nn(Functions):
    """The functions of `session.nn`."""

    # -- activations -----------------------------------------------------------------------------------------------

    def relu(self, x: Tensor, /) -> Tensor:
        """The larger of x and 0, for integers too."""
        return self._call("relu", x)

    def relu_grad(self, dy: Tensor, y: Tensor, /) -> Tensor:
        """dy where y > 0, else 0; y is relu's result, or its operand."""
        return self._call("relu_grad", dy, y)

    def sigmoid(self, x: Tensor, /) -> Tensor:
        """1 / (1 + exp(-x))."""
        return self._call("sigmoid", x)

    def sigmoid_grad(self, dy: Tensor, y: Tensor, /) -> Tensor:
        """Gradient of `sigmoid`, whose result is y."""
        return self._call("sigmoid_grad", dy, y)

    def tanh_grad(self, dy: Tensor, y: Tensor, /) -> Tensor:
        """Gradient of tanh, whose result is y."""
        return self._call("tanh_grad", dy, y)

    def silu(self, x: Tensor, /) -> Tensor:
        """x * sigmoid(x)."""
        return self._call("silu", x)

    def silu_grad(self, dy: Tensor, x: Tensor, /) -> Tensor:
        """Gradient of `silu`, whose operand is x."""
        return self._call("silu_grad", dy, x)

    def gelu(self, x: Tensor, /, *, approximate: str = "tanh") -> Tensor:
        """x * Phi(x), Phi being the normal distribution function: approximate "tanh", or "none" for the exact form.

        The exact form takes some ten times as long. Source: Hendrycks and Gimpel, arXiv 1606.08415.
        """
        return self._call("gelu", x, approximate=approximate)

    def gelu_grad(self, dy: Tensor, x: Tensor, /, *, approximate: str = "tanh") -> Tensor:
        """Gradient of `gelu` in the same form, whose operand is x."""
        return self._call("gelu_grad", dy, x, approximate=approximate)

    # -- softmax and losses ----------------------------------------------------------------------------------------

    def softmax(self, x: Tensor, /, *, axis: int = -1) -> Tensor:
        """exp(x), scaled to sum 1 along the axis; zeros where x is -inf all along it."""
        return self._call("softmax", x, axis=axis)

    def softmax_grad(self, dy: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
        """Gradient of `softmax`, whose result is y."""
        return self._call("softmax_grad", dy, y, axis=axis)

    def log_softmax(self, x: Tensor, /, *, axis: int = -1) -> Tensor:
        """log(softmax(x)), without loss of digits; -inf where x is -inf."""
        return self._call("log_softmax", x, axis=axis)

    def log_softmax_grad(self, dy: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
        """Gradient of `log_softmax`, whose result is y."""
        return self._call("log_softmax_grad", dy, y, axis=axis)

    def one_hot(self, labels: Tensor, num_classes: int, /, *, dtype: object = "float32") -> Tensor:
        """Integers [...] as [..., num_classes]: 1 at the label, 0 elsewhere; zeros for a label outside the classes."""
        return self._call("one_hot", labels, num_classes=num_classes, dtype=dtype)

    def cross_entropy(self, logits: Tensor, labels: Tensor, /) -> Tensor:
        """Mean over all rows of -log_softmax(logits) at the label: logits [..., c], integer labels [...]; a 0-d tensor.

        For a label outside [0, c), reading the result raises ValueError on the host; on a device that would have to
        stop to check, the result is NaN. Without rows the loss is NaN.
        """
        return self._call("cross_entropy", logits, labels)

    def cross_entropy_grad(self, logits: Tensor, labels: Tensor, /, *, scale: float = 1.0) -> Tensor:
        """Gradient of scale * `cross_entropy` by the logits."""
        return self._call("cross_entropy_grad", logits, labels, scale=scale)

    # -- normalisation ---------------------------------------------------------------------------------------------

    def layer_norm(
        self,
        x: Tensor,
        /,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        axis: Axes = -1,
        eps: float = 1e-5,
    ) -> Tensor:
        """(x - mean) / sqrt(variance + eps) along the axis or axes, * weight, + bias.

        weight and bias have x's shape along the axes, in x's order. A bias needs a weight.
        """
        if weight is None and bias is not None:
            error = MetadataTypeError("layer_norm: a bias needs a weight, such as a tensor of ones", op="layer_norm")
            raise located(error)
        parameters = [parameter for parameter in (weight, bias) if parameter is not None]
        return self._call("layer_norm", x, *parameters, axis=axis, eps=eps)

    def layer_norm_grad(
        self, dy: Tensor, x: Tensor, /, weight: Tensor | None = None, *, axis: Axes = -1, eps: float = 1e-5
    ) -> LayerNormGradients:
        """Gradients of `layer_norm` by x, weight and bias; without a weight, those at a weight of ones."""
        operands = (dy, x) if weight is None else (dy, x, weight)
        return LayerNormGradients(*self._call_all("layer_norm_grad", *operands, axis=axis, eps=eps))

    def rms_norm(self, x: Tensor, /, weight: Tensor | None = None, *, axis: Axes = -1, eps: float = 1e-5) -> Tensor:
        """x / sqrt(mean(x * x) + eps) along the axis or axes, * weight, which has x's shape along them.

        Source: Zhang and Sennrich, arXiv 1910.07467.
        """
        operands = (x,) if weight is None else (x, weight)
        return self._call("rms_norm", *operands, axis=axis, eps=eps)

    def rms_norm_grad(
        self, dy: Tensor, x: Tensor, /, weight: Tensor | None = None, *, axis: Axes = -1, eps: float = 1e-5
    ) -> RmsNormGradients:
        """Gradients of `rms_norm` by x and weight; without a weight, those at a weight of ones."""
        operands = (dy, x) if weight is None else (dy, x, weight)
        return RmsNormGradients(*self._call_all("rms_norm_grad", *operands, axis=axis, eps=eps))

    def dropout(self, x: Tensor, /, seed: int, *, rate: float) -> Tensor:
        """Each element set to 0 with probability `rate`, else divided by 1 - rate.

        The choice depends on the seed (an int in [0, 2**64)), the shape and the rate alone, on every device. The seed
        is an operand: a new one for each call costs nothing.
        """
        return self._call("dropout", x, operand(seed, "dropout"), rate=rate)

    def dropout_grad(self, dy: Tensor, /, seed: int, *, rate: float) -> Tensor:
        """Gradient of `dropout` with the same seed and rate: dropout of dy, since the seed serves as the mask."""
        return self._call("dropout", dy, operand(seed, "dropout"), rate=rate)

    # -- images [n, channels, height, width] -----------------------------------------------------------------------

    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        /,
        bias: Tensor | None = None,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
    ) -> Tensor:
        """x [n, c, h, w] with filters [o, c // groups, kh, kw], which are not flipped, plus bias [o].

        The result is [n, o, rows, columns]: rows = (h + 2 * padding - dilation * (kh - 1) - 1) // stride + 1, columns
        likewise. Padding is zeros.
        """
        operands = (x, weight) if bias is None else (x, weight, bias)
        return self._call("conv2d", *operands, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def conv2d_grad(
        self,
        dy: Tensor,
        x: Tensor,
        weight: Tensor,
        /,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
    ) -> ConvolutionGradients:
        """Gradients of `conv2d` by x, weight and bias."""
        return ConvolutionGradients(
            *self._call_all(
                "conv2d_grad", dy, x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups
            )
        )

    def max_pool2d(self, x: Tensor, /, kernel_size: Pair, *, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
        """The largest element of each window of x [n, c, h, w]; NaN if the window has one.

        Padding, at most half as wide as a window, does not count. `stride` is `kernel_size` unless given.
        """
        return self._call("max_pool2d", x, kernel_size=kernel_size, stride=stride, padding=padding)

    def max_pool2d_grad(
        self, dy: Tensor, x: Tensor, /, kernel_size: Pair, *, stride: Pair | None = None, padding: Pair = 0
    ) -> Tensor:
        """Gradient of `max_pool2d`, whose operand is x: of equal elements, the first in C order gets all of it."""
        return self._call("max_pool2d_grad", dy, x, kernel_size=kernel_size, stride=stride, padding=padding)

    def avg_pool2d(
        self,
        x: Tensor,
        /,
        kernel_size: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
    ) -> Tensor:
        """The mean of each window of x [n, c, h, w].

        Padding, at most half as wide as a window, counts as zeros; not at all if `count_include_pad` is False.
        `stride` is `kernel_size` unless given.
        """
        return self._call(
            "avg_pool2d",
            x,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            count_include_pad=count_include_pad,
        )

    def avg_pool2d_grad(
        self,
        dy: Tensor,
        x: Tensor,
        /,
        kernel_size: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
    ) -> Tensor:
        """Gradient of `avg_pool2d`, whose operand is x; only x's shape is used."""
        return self._call(
            "avg_pool2d_grad",
            dy,
            x,
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            count_include_pad=count_include_pad,
        )

    # -- sequences -------------------------------------------------------------------------------------------------

    def embedding(self, indices: Tensor, weight: Tensor, /) -> Tensor:
        """Rows of weight [rows, ...rest] by integer indices [...]: [..., ...rest].

        For an index outside [0, rows), reading the result raises IndexError on the host; other devices give a NaN row.
        """
        return self._call("embedding", indices, weight)

    def embedding_grad(self, dy: Tensor, indices: Tensor, /, num_embeddings: int) -> Tensor:
        """Gradient of `embedding` by weight, which has `num_embeddings` rows: dy, summed by index."""
        return self._call("embedding_grad", dy, indices, num_embeddings=num_embeddings)

    def scaled_dot_product_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        /,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """softmax(q @ k.T * scale + mask) @ v: q [..., l, d], k [..., s, d] and v [..., s, e] give [..., l, e].

        The axes in front are those of batch and heads, the same for all three. A mask broadcasts to [..., l, s]; bool:
        True where a key takes part; else it is added. `is_causal`: query i sees the keys 0 to i. `scale` is 1 / sqrt(d)
        unless given. A query that sees no key gets zeros. Memory grows with l + s, not with their product.
        """
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        return self._call("scaled_dot_product_attention", *operands, is_causal=is_causal, scale=scale)

    def scaled_dot_product_attention_grad(
        self,
        dy: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        /,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> AttentionGradients:
        """Gradients of `scaled_dot_product_attention` by q, k and v; the mask has none."""
        operands = (dy, q, k, v) if mask is None else (dy, q, k, v, mask)
        return AttentionGradients(
            *self._call_all("scaled_dot_product_attention_grad", *operands, is_causal=is_causal, scale=scale)
        )

    def __dir__(self) -> list[str]:
        """The functions, without the names whose errors only say what to write instead."""
        return present(Nn, super().__dir__())


add_hints(Nn, "session.nn", LAYERS)
