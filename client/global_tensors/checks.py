"""Checks that an argument is a placement on devices of the machine."""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import MetadataTypeError
from ...interpreter.layouts.placement import Placement
from ..calls.checks import placement_of
from ..core.core import Core
from ..locations.locations import located


def checked(core: Core, placement: Any) -> Placement:
    """A placement on devices of the machine; MetadataError at the user's line for anything else."""
    if not isinstance(placement, Placement):
        message = f"expected a placement (tensord.placement), not {type(placement).__name__}"
        raise located(MetadataTypeError(message))
    return placement_of(core, placement)
