"""The members of the cluster to which this machine belongs: a table that the supervisor always replaces as a whole.

Only the driving thread calls `join`. A table is replaced but never changed, so any thread may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.wire.members import TOKEN_LENGTHS, Member, is_token, table_of
from ..model.session import VmSession
from .answering import batched

ROWS = 64  # rows in a slice of an answer


class Membership:
    """`own`: this node, as its configuration describes it.

    `table`: all members by node, this one included. `token`: the cluster's secret, which no answer contains; ""
    before the first table. `changed`: called with the old and the new table.
    """

    def __init__(self, own: Member) -> None:
        self.own = own
        self.table: Mapping[str, Member] = {own.node: own}
        self.token = ""
        self.changed: Callable[[Mapping[str, Member], Mapping[str, Member]], None] = lambda _old, _new: None

    def join(self, session: VmSession, rows: object, token: object) -> int:
        """Replace the table.

        Returns its number of members. ProtocolError, without a change, if anything in it is wrong.
        """
        if not session.files.may_store:
            raise ProtocolError("only the daemon's own user, over ipc, may set the members of its cluster")
        if not is_token(token):
            raise ProtocolError(
                f"the token is a text of {TOKEN_LENGTHS[0]} to {TOKEN_LENGTHS[1]} printable ASCII characters"
            )
        table = table_of(rows)
        self._check_own(table.get(self.own.node))
        for node, member in table.items():
            known = self.table.get(node)
            if known is not None and member.incarnation < known.incarnation:
                raise ProtocolError(
                    f"the table is out of date: {node} has incarnation {known.incarnation}, not {member.incarnation}"
                )
        before, self.table, self.token = self.table, table, str(token)
        self.changed(before, table)
        return len(table)

    def _check_own(self, entry: Member | None) -> None:
        """Raise ProtocolError if the table is not meant for this daemon."""
        own = self.own
        if entry is None:
            raise ProtocolError(f"the table does not contain {own.node}, which is this daemon's node")
        stated = (entry.incarnation, entry.values, entry.fingerprint)
        if stated != (own.incarnation, own.values, own.fingerprint):
            certificate = f"the certificate {own.fingerprint}" if own.fingerprint else "no certificate"
            raise ProtocolError(
                f"the table is for another daemon of {own.node}: this one has incarnation {own.incarnation}, receives "
                f"values at {own.values or 'no address'} and has {certificate}"
            )

    def rows(self) -> Iterator[list[dict[str, Any]]]:
        """The rows of all members, in slices."""
        for some in batched(list(self.table.values()), ROWS):
            yield [member.row() for member in some]


def refuse_alone() -> MetadataError:
    """The error for a machine without a node name."""
    return MetadataError('this machine has no node name: give it one, node = "node0" in its configuration')
