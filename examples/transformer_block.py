"""A transformer block, forward and backward, on the tensord virtual machine, compared with the same block in NumPy.

    python examples/transformer_block.py --device sim:0

The block is that of GPT-2: layer norm, causal attention with several heads, residual; layer norm, a gelu MLP, residual.
`Block` writes it with operators, `session.xp` and `session.nn`, in float32; `Reference` with NumPy alone, in float64.
The program prints the largest difference of the output and of each gradient, relative to the largest element. The exit
status is 1 if a difference is larger than rounding explains.

With `--routine`, the forward and backward pass are captured once, and run as one program. The same values are
computed op by op, too: they must agree to the last bit, and the times are printed.

It runs on a machine in this process, or, with `--address`, on that of a daemon.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import tensord as td

EPS = 1e-5
# The largest allowed difference: some hundred sums of products, rounded to float32.
TOLERANCE = 2e-5

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Tensors: TypeAlias = dict[str, td.Tensor]


def parameters(width: int, rng: np.random.Generator) -> Arrays:
    """The block's parameters, none of them zero or one, so that a wrong gradient is noticed."""
    shapes = {
        "norm1.weight": (width,),
        "norm1.bias": (width,),
        "qkv.weight": (width, 3 * width),
        "qkv.bias": (3 * width,),
        "out.weight": (width, width),
        "out.bias": (width,),
        "norm2.weight": (width,),
        "norm2.bias": (width,),
        "up.weight": (width, 4 * width),
        "up.bias": (4 * width,),
        "down.weight": (4 * width, width),
        "down.bias": (width,),
    }
    return {
        name: (rng.standard_normal(shape) / np.sqrt(shape[0]) + ("norm" in name)).astype(np.float32)
        for name, shape in shapes.items()
    }


class Block:
    """The block on a device: x [batch, tokens, width]."""

    def __init__(self, session: td.Session, parameters: Tensors, heads: int) -> None:
        self.xp, self.nn = session.xp, session.nn
        self.parameters = parameters
        self.heads = heads

    # -- forward ---------------------------------------------------------------------------------------------------

    def forward(self, x: td.Tensor) -> tuple[td.Tensor, Tensors]:
        """The output, and the values that the backward pass needs again; they are released with this dictionary."""
        normed1 = self.norm("norm1", x)
        q, k, v = self.split(self.linear("qkv", normed1))
        merged = self.merge(self.nn.scaled_dot_product_attention(q, k, v, is_causal=True))
        middle = x + self.linear("out", merged)
        normed2 = self.norm("norm2", middle)
        up = self.linear("up", normed2)
        active = self.nn.gelu(up)
        y = middle + self.linear("down", active)
        saved = {"x": x, "normed1": normed1, "q": q, "k": k, "v": v, "merged": merged}
        return y, {**saved, "middle": middle, "normed2": normed2, "up": up, "active": active}

    def norm(self, name: str, x: td.Tensor) -> td.Tensor:
        """Layer norm over the width."""
        return self.nn.layer_norm(x, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"], eps=EPS)

    def linear(self, name: str, x: td.Tensor) -> td.Tensor:
        """x @ weight + bias."""
        return x @ self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def split(self, qkv: td.Tensor) -> tuple[td.Tensor, td.Tensor, td.Tensor]:
        """Queries, keys and values, each [batch, heads, tokens, width / heads]: views, nothing is copied."""
        batch, tokens, width = qkv.shape
        parts = self.xp.reshape(qkv, (batch, tokens, 3, self.heads, width // 3 // self.heads))
        parts = self.xp.permute_dims(parts, (2, 0, 3, 1, 4))
        return parts[0], parts[1], parts[2]

    def merge(self, heads: td.Tensor) -> td.Tensor:
        """The heads side by side: [batch, tokens, width]."""
        batch, count, tokens, size = heads.shape
        return self.xp.reshape(self.xp.permute_dims(heads, (0, 2, 1, 3)), (batch, tokens, count * size))

    # -- backward --------------------------------------------------------------------------------------------------

    def backward(self, dy: td.Tensor, saved: Tensors) -> Tensors:
        """The gradients by x and by each parameter, from the gradient by the output (`dy`)."""
        gradients: Tensors = {}
        dactive = self.linear_grad("down", dy, saved["active"], gradients)
        dup = self.nn.gelu_grad(dactive, saved["up"])
        dnormed2 = self.linear_grad("up", dup, saved["normed2"], gradients)
        dmiddle = dy + self.norm_grad("norm2", dnormed2, saved["middle"], gradients)
        dmerged = self.linear_grad("out", dmiddle, saved["merged"], gradients)
        dqkv = self.attention_grad(dmerged, saved)
        dnormed1 = self.linear_grad("qkv", dqkv, saved["normed1"], gradients)
        gradients["x"] = dmiddle + self.norm_grad("norm1", dnormed1, saved["x"], gradients)
        return gradients

    def norm_grad(self, name: str, dy: td.Tensor, x: td.Tensor, gradients: Tensors) -> td.Tensor:
        """The gradient by the operand of `norm`. The gradients by the parameters are added to `gradients`."""
        found = self.nn.layer_norm_grad(dy, x, self.parameters[f"{name}.weight"], eps=EPS)
        gradients[f"{name}.weight"], gradients[f"{name}.bias"] = found.dweight, found.dbias
        return found.dx

    def linear_grad(self, name: str, dy: td.Tensor, x: td.Tensor, gradients: Tensors) -> td.Tensor:
        """The gradient by the operand of `linear`. The gradients by the parameters are added to `gradients`."""
        rows, drows = (self.xp.reshape(t, (-1, t.shape[-1])) for t in (x, dy))
        gradients[f"{name}.weight"] = rows.T @ drows
        gradients[f"{name}.bias"] = self.xp.sum(drows, axis=0)
        return dy @ self.parameters[f"{name}.weight"].T

    def attention_grad(self, dmerged: td.Tensor, saved: Tensors) -> td.Tensor:
        """The gradient by queries, keys and values, side by side. The weights of attention are computed again."""
        q, k, v = saved["q"], saved["k"], saved["v"]
        batch, count, tokens, size = q.shape
        dheads = self.xp.permute_dims(self.xp.reshape(dmerged, (batch, tokens, count, size)), (0, 2, 1, 3))
        parts = self.xp.stack(self.nn.scaled_dot_product_attention_grad(dheads, q, k, v, is_causal=True))
        return self.xp.reshape(self.xp.permute_dims(parts, (1, 3, 0, 2, 4)), (batch, tokens, 3 * count * size))


class Reference:
    """The same block in NumPy, with every derivative written by hand, and without tensord."""

    def __init__(self, parameters: Arrays, heads: int) -> None:
        self.parameters = {name: array.astype(np.float64) for name, array in parameters.items()}
        self.heads = heads

    def run(self, x: Array, dy: Array) -> tuple[Array, Arrays]:
        """The output, and the gradients by x and by each parameter."""
        p, gradients = self.parameters, dict[str, Array]()
        # Forward.
        standard1, scale1 = standardised(x)
        normed1 = standard1 * p["norm1.weight"] + p["norm1.bias"]
        q, k, v = self.heads_of(normed1 @ p["qkv.weight"] + p["qkv.bias"])
        shares = causal_shares(q, k)
        merged = self.merged(shares @ v)
        middle = x + merged @ p["out.weight"] + p["out.bias"]
        standard2, scale2 = standardised(middle)
        normed2 = standard2 * p["norm2.weight"] + p["norm2.bias"]
        up = normed2 @ p["up.weight"] + p["up.bias"]
        active, slope = gelu_and_slope(up)
        y = middle + active @ p["down.weight"] + p["down.bias"]
        # Backward.
        dup = self.linear_grad("down", dy, active, gradients) * slope
        dnormed2 = self.linear_grad("up", dup, normed2, gradients)
        dmiddle = dy + self.norm_grad("norm2", dnormed2, standard2, scale2, gradients)
        dheads = np.split(self.linear_grad("out", dmiddle, merged, gradients), self.heads, axis=-1)
        dattended = np.stack(dheads, axis=1)
        dqkv = [self.merged(part) for part in attention_grad(dattended, q, k, v, shares)]
        dnormed1 = self.linear_grad("qkv", np.concatenate(dqkv, axis=-1), normed1, gradients)
        gradients["x"] = dmiddle + self.norm_grad("norm1", dnormed1, standard1, scale1, gradients)
        return y, gradients

    def heads_of(self, qkv: Array) -> list[Array]:
        """Queries, keys and values, each [batch, heads, tokens, width / heads]."""
        return [np.stack(np.split(part, self.heads, axis=-1), axis=1) for part in np.split(qkv, 3, axis=-1)]

    def merged(self, heads: Array) -> Array:
        """The heads side by side."""
        return np.concatenate([heads[:, i] for i in range(self.heads)], axis=-1)

    def linear_grad(self, name: str, dy: Array, x: Array, gradients: Arrays) -> Array:
        """The gradients of x @ weight + bias."""
        gradients[f"{name}.weight"] = np.einsum("bti,bto->io", x, dy)
        gradients[f"{name}.bias"] = dy.sum((0, 1))
        return dy @ self.parameters[f"{name}.weight"].T

    def norm_grad(self, name: str, dy: Array, standard: Array, scale: Array, gradients: Arrays) -> Array:
        """The gradients of layer norm, from the results of `standardised`."""
        gradients[f"{name}.weight"], gradients[f"{name}.bias"] = (dy * standard).sum((0, 1)), dy.sum((0, 1))
        g = dy * self.parameters[f"{name}.weight"]
        dx: Array = scale * (g - g.mean(-1, keepdims=True) - standard * (g * standard).mean(-1, keepdims=True))
        return dx


def standardised(x: Array) -> tuple[Array, Array]:
    """x with mean 0 and variance 1 along the width, and the factor by which it was scaled."""
    scale = 1 / np.sqrt(x.var(-1, keepdims=True) + EPS)
    return (x - x.mean(-1, keepdims=True)) * scale, scale


def causal_shares(q: Array, k: Array) -> Array:
    """Softmax of the scores of each query with the keys up to it."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(-1, keepdims=True)) * np.tri(q.shape[-2])
    shares: Array = powers / powers.sum(-1, keepdims=True)
    return shares


def attention_grad(dy: Array, q: Array, k: Array, v: Array, shares: Array) -> tuple[Array, Array, Array]:
    """The gradients of shares @ v by q, k and v."""
    dshares = dy @ v.swapaxes(-1, -2)
    dscores = shares * (dshares - (dshares * shares).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return dscores @ k, dscores.swapaxes(-1, -2) @ q, shares.swapaxes(-1, -2) @ dy


def gelu_and_slope(x: Array) -> tuple[Array, Array]:
    """The tanh form of gelu, and its derivative."""
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x) / 2


def difference(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest element; infinite unless shapes agree and all is finite."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - expected).max() / (np.abs(expected).max() or 1))


def both_ways(session: td.Session, heads: int, parameters: Tensors, x: td.Tensor, dy: td.Tensor) -> Tensors:
    """The block's output, and the gradients by x and by each parameter, from the gradient by the output (`dy`)."""
    block = Block(session, parameters, heads)
    y, saved = block.forward(x)
    return {"output": y, **block.backward(dy, saved)}


def run(session: td.Session, options: argparse.Namespace, console: Console) -> dict[str, float]:
    """Do one forward and backward pass on the device and in NumPy. Returns the differences by name."""
    rng = np.random.default_rng(options.seed)
    values = parameters(options.width, rng)
    x, dy = rng.standard_normal((2, options.batch, options.tokens, options.width), dtype=np.float32)
    on_device = {name: session.asarray(array, device=options.device) for name, array in values.items()}
    function: Any = partial(both_ways, session, options.heads)
    arguments = (on_device, session.asarray(x, device=options.device), session.asarray(dy, device=options.device))
    step = session.routine(function) if options.routine else function
    results = step(*arguments)
    expected_y, expected = Reference(values, options.heads).run(x.astype(np.float64), dy.astype(np.float64))
    if options.routine:
        compare(session, function, step, arguments, console)
    return {
        "output": difference(results["output"].numpy(), expected_y),
        **{f"gradient of {name}": difference(results[name].numpy(), expected[name]) for name in sorted(expected)},
    }


def compare(session: td.Session, function: Any, routine: Any, arguments: tuple[Any, ...], console: Console) -> None:
    """Run the function op by op and as a routine, and print what the routine saves."""
    from side_by_side import differing, take_turns
    from side_by_side import report as report_on

    seconds = take_turns(session, [lambda: function(*arguments), lambda: routine(*arguments)])
    by_op, as_routine = (
        dict(zip(found, session.fetch(found.values()), strict=True))
        for found in (function(*arguments), routine(*arguments))
    )
    report_on(routine, arguments, seconds, differing(as_routine, by_op), console)


def report(differences: dict[str, float], device: str, console: Console) -> None:
    """Print a line for each difference."""
    table = Table("", "largest relative difference", title=f"a transformer block on {device}", title_justify="left")
    for name, value in differences.items():
        table.add_row(name, f"{value:.1e}{'' if value <= TOLERANCE else '  too large'}")
    console.print(table)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A transformer block with tensord, compared with NumPy.")
    parser.add_argument("--device", default="cpu:0", help="cpu:0, sim:0, ... (default: cpu:0)")
    parser.add_argument("--address", help="of a daemon that has the device (default: a machine in this process)")
    parser.add_argument("--batch", type=int, default=4, help="sequences (default: 4)")
    parser.add_argument("--tokens", type=int, default=32, help="per sequence (default: 32)")
    parser.add_argument("--width", type=int, default=64, help="of a token, a multiple of the heads (default: 64)")
    parser.add_argument("--heads", type=int, default=4, help="of the attention (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="of parameters and operands")
    parser.add_argument("--routine", action="store_true", help="capture the block, run it whole, and compare")
    options = parser.parse_args()
    if options.heads < 1 or options.width % options.heads:
        parser.error(f"a width of {options.width} does not divide into {options.heads} heads")
    return options


def main() -> int:
    """1 if something differs by more than rounding."""
    options = parse()
    console = Console()
    # To measure, one thread per BLAS call, as in train_digits.py: these products are small.
    host: Any = {"name": "cpu:0", "blas_threads": 1} if options.routine else "cpu:0"
    devices = None if options.address else [host, *({options.device} - {"cpu:0"})]
    with td.connect(options.address or "local", devices=devices) as session:
        differences = run(session, options, console)
    report(differences, options.device, console)
    return int(not all(value <= TOLERANCE for value in differences.values()))


if __name__ == "__main__":
    sys.exit(main())
