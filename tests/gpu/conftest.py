"""The proof's processes use the cached bytecode: a proof itself compiles all modules anew."""

from __future__ import annotations

import pytest

from .check import Proof


@pytest.fixture(autouse=True)
def bytecode_is_not_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the bytecode cache, as all processes of the tests do."""
    environment = Proof.environment

    def ours(proof: Proof) -> dict[str, str]:
        return {name: value for name, value in environment(proof).items() if name != "PYTHONPYCACHEPREFIX"}

    monkeypatch.setattr(Proof, "environment", ours)
