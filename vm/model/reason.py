"""Why one instruction waits for another."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why one instruction waits for another."""

    RAW = "RAW"
    WAR = "WAR"
    WAW = "WAW"
    # A Barrier waits for every earlier instruction of its session.
    BARRIER = "barrier"
