"""All parts of a session: those that lie in rooms above the core."""

from __future__ import annotations

from ..calls.calls import Calls
from ..calls.scopes import Scopes
from ..core.core import Core
from ..files.savings import Savings
from ..outbox.outbox import Outbox
from ..routines.control_flow import Flows
from ..sharing.names import Names


class Parts(Core):
    """The core of a session, whole."""

    __slots__ = ("flows", "names", "savings")

    def __init__(self, outbox: Outbox, address: str, hint: str) -> None:
        super().__init__(outbox, address, hint)
        self.calls = Calls(outbox)
        self.scopes = Scopes(outbox)
        self.opened, self.innermost = self.scopes.opened, self.scopes.innermost
        self.savings = Savings()
        self.names = Names(outbox)
        self.flows = Flows()
