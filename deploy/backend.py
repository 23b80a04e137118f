"""The build backend of pyproject.toml: setuptools, with the further packages that building a wheel requires."""

from __future__ import annotations

import os

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - the backend's other hooks

COMPILING = ("mypy>=2,<3",)
DESCRIBING = ("numpy>=2.1",)  # building a wheel describes the ops from their definitions, which needs NumPy


def get_requires_for_build_wheel(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """The packages that building a wheel requires."""
    compiling = COMPILING if os.environ.get("TENSORD_COMPILE", "0") not in {"", "0"} else ()
    return [*build_meta.get_requires_for_build_wheel(config_settings), *DESCRIBING, *compiling]
