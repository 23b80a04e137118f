"""Opens a session on one member of a cluster."""

from __future__ import annotations

from ...interpreter.wire.addresses import is_local
from ...interpreter.wire.members import Member
from ..outbox.outbox import Outbox
from ..session.connect import ConnectOptions, connect_daemon, connect_inside
from ..session.parts import Parts


def opened(member: Member, wanted: ConnectOptions) -> Parts:
    """The core of a new session on a member. A member without an address is a machine of this process, named as the
    node."""
    address = member.address or f"local:{member.node}"
    if is_local(address):
        return connect_inside(address, wanted, Outbox)._core
    return connect_daemon(address, wanted, server_key=member.key)._core
