"""The ops of neural networks.

- ops: `activations`, `softmax`, `losses`, `normalisation`, `dropout`, `embedding`, `convolution`, `pooling`,
  `attention`
- `kernels`, `cross_entropy`, `convolution_kernels`: kernels; `blocks`: kernels that work in blocks; `windows`: sliding
  windows
- `compose`: ops composed of other ops; `operands`, `labels`: checks that several ops share
"""

from __future__ import annotations

from . import (  # noqa: F401 - each fills the registry
    activations,
    attention,
    convolution,
    dropout,
    embedding,
    losses,
    normalisation,
    pooling,
    softmax,
)
