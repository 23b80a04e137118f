"""The reasons for which an op has no rule. Each device then computes the whole result from whole operands."""

from __future__ import annotations

from typing import Final

DATA_DEPENDENT: Final = "the shape of the result depends on data"
MADE_WHOLE: Final = "each device makes the whole result, and a slice of it needs no data from other devices"
DRAWN_WHOLE: Final = "each device draws all random values, so that they do not depend on the placement"
