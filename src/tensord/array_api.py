"""The Python array API standard, 2025.12, on the default session: `import tensord.array_api as xp`.

The session is opened on first use: at $TENSORD_ADDRESS, else on the daemon that runs here, else on a machine in this
process. Another session's functions are its `xp`. Type checkers read array_api.pyi.
"""

from __future__ import annotations

from .client.session.default_namespace import become_default

become_default(__name__)
del annotations, become_default  # it has the namespace's names, and no others
