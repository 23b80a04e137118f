"""Write the types of `tensord.array_api` from the namespace: .venv/bin/python docs/make_stub.py.

The module takes its names from a class when it is imported, of which type checkers see nothing.
"""

from __future__ import annotations

from pathlib import Path

from tensord.client.array_api.namespace import EXTENSION_NAMES, public_names

STUB = Path(__file__).parent.parent / "src/tensord/array_api.pyi"
HEAD = '''"""The types of `tensord.array_api`, written by docs/make_stub.py."""

from typing import Final

from .client.array_api.fft import Fft
from .client.array_api.linalg import Linalg
from .client.array_api.namespace import NamespaceInfo
from .client.array_api.special import Special
from .client.session.default_namespace import DefaultNamespace

__array_api_version__: Final[str]

def __array_namespace_info__() -> NamespaceInfo: ...

_xp: DefaultNamespace

fft: Fft
linalg: Linalg
special: Special
'''


def stub() -> str:
    """The stub: each name has the type that the namespace gives it."""
    names = public_names()
    typed = "".join(f"{name} = _xp.{name}\n" for name in names if name not in EXTENSION_NAMES)
    return f"{HEAD}{typed}\n__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


if __name__ == "__main__":
    STUB.write_text(stub())
