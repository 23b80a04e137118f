"""Own ops for tests, whose definitions end with the test: other tests go through all defined ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensord.interpreter.schema.opdef import REGISTRY


@contextmanager
def own_ops_end() -> Iterator[None]:
    """Ops that are defined inside of the block are gone behind it."""
    before = set(REGISTRY)
    try:
        yield
    finally:
        for name in set(REGISTRY) - before:
            del REGISTRY[name]
