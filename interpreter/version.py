"""The version of the package, for every floor."""

from __future__ import annotations

import sys


def version() -> str:
    """The version in the source, so that a checkout that is only on the path has one, too.

    Python has imported the package's root before this. It is looked up, since an import would point upwards.
    """
    root = sys.modules[__name__.partition(".")[0]]
    found: str = root.__version__
    return found
