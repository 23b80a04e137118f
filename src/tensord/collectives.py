"""Collectives: computations of several devices together, on tensors each of which is on a different device.

    first, second = tensord.collectives.all_reduce([x.to_device("sim:0"), y.to_device("sim:1")])

See docs/collectives.md.
"""

from __future__ import annotations

from .client.collectives.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]
