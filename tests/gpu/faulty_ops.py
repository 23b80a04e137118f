"""An op that breaks its device, and a daemon that has the op: `python -m tests.gpu.faulty_ops serve ...`.

On a GPU its kernel writes to an invalid address, after which CUDA refuses every call of the process. Elsewhere it
copies; a simulated device is configured to be lost with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensord.interpreter import ops as _ops  # noqa: F401 - the registry's own come first
from tensord.interpreter.schema.opdef import REGISTRY, OpDef, register

NAME = "write_anywhere"
SOURCE = """
extern "C" __global__ void write_anywhere(float* out) { out[1ull << 40] = 1.0f; }
"""


def like_first(metas: Any, _attributes: Any) -> Any:
    """One result with the meta of the operand."""
    return (metas[0],)


def kernel(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], _attributes: Any) -> None:
    """Write to an unmapped address."""
    outputs[0][...] = inputs[0]
    if xp.__name__ == "cupy":
        xp.RawKernel(SOURCE, NAME)((1,), (1,), (outputs[0],))


def add() -> None:
    """Define the op in this process."""
    if NAME not in REGISTRY:
        register(OpDef(NAME, 1, like_first, "Breaks the device.", kernel=kernel, bounded=False))


def faulty(device: str) -> dict[str, object]:
    """The device's options, with which the op loses it."""
    if device.startswith("cuda"):
        return {"name": device}
    return {"name": device, "faults": [{"kind": "lost", "label": NAME}]}


if __name__ == "__main__":
    from tensord.client.cli.main import main

    add()
    main()
