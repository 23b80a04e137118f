"""The seats of the pages that watch a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from tensord.client.cli.web.seats import Seats


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def taken(seats: Seats) -> Any:
    seat = seats.join()
    assert seat is not None
    return seat


@in_a_loop
async def test_a_slow_page_gets_the_newest_view_and_how_many_it_missed() -> None:
    seats = Seats()
    seat = taken(seats)
    for number in range(5):
        seats.show(str(number))
    assert list(map(json.loads, await seat.next())) == [{"skipped": 4, "view": 4}]
    seats.show("5")
    assert list(map(json.loads, await seat.next())) == [{"skipped": 0, "view": 5}]


@in_a_loop
async def test_states_and_the_history_are_not_lost_behind_views() -> None:
    seats = Seats()
    seat = taken(seats)
    seats.show("1")
    seat.show_history("0")
    seats.tell('{"state":"waiting"}')
    seats.show("2")
    got = list(map(json.loads, await seat.next()))
    assert got == [{"state": "waiting"}, {"skipped": 0, "view": 0}, {"skipped": 1, "view": 2}]


@in_a_loop
async def test_a_new_page_is_told_the_state() -> None:
    seats = Seats()
    seats.tell('"connected"')
    assert await taken(seats).next() == ['"connected"']


@in_a_loop
async def test_there_are_so_many_seats_and_no_more() -> None:
    seats = Seats(2)
    first = taken(seats)
    assert taken(seats) is not first
    assert seats.join() is None
    seats.leave(first)
    assert taken(seats) is not first


@in_a_loop
async def test_it_is_known_whether_anybody_looks() -> None:
    seats = Seats()
    one, other = taken(seats), taken(seats)
    seats.leave(one)
    assert (seats.taken.is_set(), seats.empty.is_set()) == (True, False)
    seats.leave(other)
    assert (seats.taken.is_set(), seats.empty.is_set()) == (False, True)


@in_a_loop
async def test_a_page_that_waits_hears_of_the_end() -> None:
    seats = Seats()
    seat = taken(seats)
    waiting = asyncio.ensure_future(seat.next())
    await asyncio.sleep(0)
    seats.end()
    assert await waiting == []
    assert seat.ended
