"""The tables of states: an event without an entry changes nothing, and from each state there is a way to the end."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.types.meta import Meta
from tensord.streams.links.tcp.halves import (
    PEER_EVENTS,
    RECEIVER,
    SENDER,
    HalfEvent,
    HalfState,
    TcpHalf,
    Violation,
    bytes_of,
)

from ....each_case import each_case

META = Meta.of((2,), "int8")
TABLES = {"sender": SENDER, "receiver": RECEIVER}


@each_case("side", list(TABLES))
@each_case("event", list(HalfEvent))
def test_an_event_goes_where_the_table_says_or_changes_nothing(side, event):
    for state, ways in TABLES[side].items():
        half = TcpHalf(bytes(16), state, META, table=TABLES[side])
        if event in ways:
            half.on(event)
            assert half.state is ways[event]
        else:
            with pytest.raises(ProtocolError) as raised:
                half.on(event)
            assert half.state is state
            assert isinstance(raised.value, Violation) or event not in PEER_EVENTS


@each_case("side", list(TABLES))
def test_breaks_and_withdrawals_are_possible_in_every_state(side):
    for state, ways in TABLES[side].items():
        assert ways[HalfEvent.WITHDRAWN] in {HalfState.ENDED, state}
        assert ways[HalfEvent.BROKEN] in {HalfState.ENDED, HalfState.FAILED}


@each_case("side", list(TABLES))
def test_every_state_is_reached_and_ends(side):
    table, starts = (
        TABLES[side],
        {"sender": {HalfState.QUEUED}, "receiver": {HalfState.EXPECTED, HalfState.ARRIVED}}[side],
    )
    reached = set(starts)
    while more := {after for state in reached & table.keys() for after in table[state].values()} - reached:
        reached |= more
    assert reached == table.keys() | {HalfState.ENDED}


def test_nothing_is_told_while_a_thread_is_busy_with_the_bytes():
    told: list[ProtocolError] = []
    half = TcpHalf(bytes(16), HalfState.SENT, META, told.append, busy=True)  # type: ignore[arg-type]
    half.on(HalfEvent.BROKEN)
    error = ProtocolError("gone")
    assert half.call(error) == []
    ((tell, given),) = half.let_go()
    assert given is error
    tell(given)
    assert told == [error]
    assert half.call(None) == []  # once


@each_case("shape", [(), (0,), (3, 0, 2), (4, 5)])
def test_bytes_of_an_array_are_its_own(shape):
    array = np.zeros(shape, np.int32)
    view = bytes_of(array)
    assert len(view) == array.nbytes
    if array.nbytes:
        view[0] = 7
        assert array.reshape(-1)[0] == 7


def test_bytes_of_a_view_are_in_the_order_of_its_rows():
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    for view in (array.T, array[::2, ::-1], np.asfortranarray(array)):
        assert bytes(bytes_of(view)) == view.tobytes()
