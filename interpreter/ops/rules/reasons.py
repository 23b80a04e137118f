"""The reasons for which an op has no rule. Each device then computes the whole result from whole operands."""

from __future__ import annotations

from typing import Final

DATA_DEPENDENT: Final = "data decide the result's shape"
MADE: Final = "each device makes all of it, and a slice of that needs nothing of another device"
DRAWN_WHOLE: Final = "random values are drawn whole, so that they do not depend on the placement"
