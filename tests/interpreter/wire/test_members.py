"""Entries of a cluster's members: an entry from outside is valid, or is refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.members import Member, PortRange, is_token, member_of, table_of

from ...each_case import each_case

ROW = {
    "node": "node1",
    "address": "tcp://10.0.0.5:7700",
    "key": "k" * 40,
    "values": "10.0.0.5:7701",
    "fingerprint": "0f" * 32,
    "incarnation": 3,
    "devices": ["node1/cpu:0", "node1/sim:0"],
    "state": "up",
}


def test_a_member_is_its_entry_and_back():
    member = member_of(ROW)
    assert member.row() == ROW
    assert member_of(member.row()) == member
    assert member.is_up
    assert member_of(Member("node2").row()) == Member("node2")  # a daemon's own entry at first


@each_case(
    ("change", "told"),
    [
        ({"node": "a/b"}, "name of a node"),
        ({"node": 3}, "name of a node"),
        ({"address": "10.0.0.5:7700"}, "address of member node1"),
        ({"address": "tcp://*:7700"}, "address of member node1"),
        ({"address": "x" * 300}, "address of member node1"),
        ({"key": "short"}, "key of member node1"),
        ({"key": b"k" * 40}, "key of member node1"),
        ({"values": "10.0.0.5"}, "values of member node1"),
        ({"values": "10.0.0.5:0"}, "values of member node1"),
        ({"values": "10.0.0.5:7701-7702"}, "values of member node1"),
        ({"values": "10.0.0.5:99999"}, "values of member node1"),
        ({"values": ["10.0.0.5", 7701]}, "values of member node1"),
        ({"fingerprint": "0F" * 32}, "fingerprint of member node1"),
        ({"fingerprint": "00"}, "fingerprint of member node1"),
        ({"incarnation": -1}, "incarnation of member node1"),
        ({"incarnation": True}, "incarnation of member node1"),
        ({"incarnation": 1 << 63}, "incarnation of member node1"),
        ({"devices": "node1/cpu:0"}, "devices of member node1"),
        ({"devices": [["node1/cpu:0"]]}, "devices of member node1"),
        ({"devices": ["cpu:0"]}, "devices of member node1"),
        ({"devices": ["node2/cpu:0"]}, "not its own"),
        ({"devices": ["node1/cpu:0"] * 2}, "not its own, or occur twice"),
        ({"devices": [f"node1/cpu:{n % 1000}" for n in range(1025)]}, "devices of member node1"),
        ({"state": "dead"}, "state of member node1"),
        ({"state": ["up"]}, "state of member node1"),
        ({"colour": "red"}, "a member is a map with node, address"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(change, told):
    with pytest.raises(ProtocolError, match=told):
        member_of({**ROW, **change})


def test_a_table_has_each_node_once():
    assert list(table_of([ROW, Member("node2").row()])) == ["node1", "node2"]
    with pytest.raises(ProtocolError, match="node1 occurs twice"):
        table_of([ROW, ROW])
    with pytest.raises(ProtocolError, match="a list, of 4096"):
        table_of([ROW] * 5000)
    with pytest.raises(ProtocolError, match="a list, of 4096"):
        table_of(ROW)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(ROW)), inner, max_size=3),
    max_leaves=6,
)


@given(plain | st.fixed_dictionaries({name: plain | st.just(value) for name, value in ROW.items()}))
def test_whatever_comes_is_a_member_or_refused(row):
    try:
        member = member_of(row)
    except ProtocolError:
        return
    assert member.row() == {**row, "devices": list(row["devices"])}


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("10.0.0.5:7701", PortRange("10.0.0.5", 7701, 7701)),
        ("host-1:7701-7800", PortRange("host-1", 7701, 7800)),
        ("[::1]:0", PortRange("::1", 0, 0)),
    ],
)
def test_hosts_and_ports_to_take_values_at(text, ports):
    assert PortRange.of(text) == ports
    assert PortRange.of(ports.at(7701)) == PortRange(ports.host, 7701, 7701)


@pytest.mark.parametrize("text", ["", "host", "host:", "host:8-7", "host:70000", "host:0-9", "h h:1", "::1:7", "[x]:1"])
def test_texts_without_a_host_and_ports(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        PortRange.of(text)


def test_tokens():
    assert is_token("a" * 32)
    for bad in ("a" * 31, "a" * 129, "é" * 40, "a" * 31 + "\n", b"a" * 32, None):
        assert not is_token(bad)
