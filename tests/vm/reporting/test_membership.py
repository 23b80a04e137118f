"""The table of a cluster's members: the peers that may set it, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.members import Member
from tensord.vm.model.session import VmSession
from tensord.vm.reporting.membership import Membership
from tensord.vm.reporting.questions import whole

TOKEN = "t" * 32
OWN = Member("node0", values="127.0.0.1:7701", incarnation=2, devices=("node0/cpu:0",))
OTHER = Member("node1", "tcp://127.0.0.1:7700", values="127.0.0.1:7702", incarnation=5, devices=("node1/cpu:0",))


@pytest.fixture
def members() -> Membership:
    return Membership(OWN)


@pytest.fixture
def told(members) -> list[Any]:
    changes: list[Any] = []
    members.changed = lambda old, new: changes.append((dict(old), dict(new)))
    return changes


def session(*, may: bool = True) -> VmSession:
    made = VmSession(1, lambda *_: None)
    made.files.may_store = may
    return made


def rows(*members: Member) -> list[dict[str, Any]]:
    return [member.row() for member in members]


def test_at_first_a_node_is_its_only_member(members):
    assert whole(members.rows()) == rows(OWN)


def test_a_table_takes_the_place_of_the_last_one(members, told):
    assert members.join(session(), rows(OWN, OTHER), TOKEN) == 2
    assert whole(members.rows()) == rows(OWN, OTHER)
    assert told == [({"node0": OWN}, {"node0": OWN, "node1": OTHER})]
    assert members.token == TOKEN
    assert TOKEN not in str(whole(members.rows()))


@pytest.mark.parametrize(
    ("table", "token", "why"),
    [
        (rows(OTHER), TOKEN, "does not contain node0"),
        (rows(OWN._replace(incarnation=1), OTHER), TOKEN, "this one has incarnation 2"),
        (rows(OWN._replace(values=""), OTHER), TOKEN, "receives values at 127.0.0.1:7701"),
        (rows(OWN._replace(fingerprint="ab" * 32), OTHER), TOKEN, "has no certificate"),
        (rows(OWN, OTHER._replace(incarnation=4)), TOKEN, "node1 has incarnation 5, not 4"),
        ([*rows(OWN), {"node": "node2"}], TOKEN, "a member is a map"),
        (rows(OWN, OTHER), "short", "the token is"),
        ("rows", TOKEN, "members are a list"),
    ],
)
def test_a_table_that_is_wrong_anywhere_changes_nothing(members, table, token, why):
    members.join(session(), rows(OWN, OTHER), TOKEN)
    changes: list[Any] = []
    members.changed = lambda *tables: changes.append(tables)
    with pytest.raises(ProtocolError, match=why):
        members.join(session(), table, token)
    assert (whole(members.rows()), members.token, changes) == (rows(OWN, OTHER), TOKEN, [])


def test_strangers_tell_nothing(members, told):
    with pytest.raises(ProtocolError, match="only the daemon's own user"):
        members.join(session(may=False), rows(OWN, OTHER), TOKEN)
    assert not told
