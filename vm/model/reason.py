"""The reasons of edges, and the first words in the labels of evictions and returns. Both are part of trace files."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"
    # The target gets memory that a launch at admission may still use.
    MEMORY = "memory"
    # In the trace of several nodes: the value comes from an instruction of another node.
    LINK = "link"
    # A barrier waits for every earlier instruction of its session.
    BARRIER = "barrier"


# The first word in the label of a transfer: a planned eviction, an eviction because the plan did not hold, and the
# return of an evicted value.
EVICT: Final = "evict"
REPLAN: Final = "replan"
RETURN: Final = "return"
MAKES_ROOM: Final = (f"{EVICT} ", f"{REPLAN} ")  # the beginnings of labels of evictions
