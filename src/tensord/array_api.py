"""The Python array API standard, 2025.12, on the default session: `import tensord.array_api as xp`.

The session is opened on first use: at $TENSORD_ADDRESS, else on the daemon that runs here, else on a machine in this
process. Another session's functions are its `xp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client.array_api.namespace import become_default

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The standard's names, of which type checkers see nothing."""


become_default(__name__)
del TYPE_CHECKING, Any, annotations, become_default  # it has the standard's names, and no others
