"""The build backend of pyproject.toml: setuptools, and what a wheel needs beside it."""

from __future__ import annotations

import os

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - the backend's other hooks

COMPILING = ("mypy>=2,<3",)
DESCRIBING = ("numpy>=2.1",)  # the ops are described from their definitions


def get_requires_for_build_wheel(config_settings: dict[str, str | list[str] | None] | None = None) -> list[str]:
    """What a wheel is built with."""
    compiling = COMPILING if os.environ.get("TENSORD_COMPILE", "0") not in {"", "0"} else ()
    return [*build_meta.get_requires_for_build_wheel(config_settings), *DESCRIBING, *compiling]
