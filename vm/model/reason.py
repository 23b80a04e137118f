"""Why one instruction waits for another."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"
    # It takes memory that a launch at admission may still use.
    MEMORY = "memory"
    # In the trace of several nodes: its value comes from an instruction of another node.
    LINK = "link"
    # A Barrier waits for every earlier instruction of its session.
    BARRIER = "barrier"


# The first word in the label of a transfer that makes room, as planned, or where the plan did not hold; and of one that
# brings back what had to leave.
EVICT: Final = "evict"
REPLAN: Final = "replan"
RETURN: Final = "return"
MAKES_ROOM: Final = (f"{EVICT} ", f"{REPLAN} ")  # how such labels begin
