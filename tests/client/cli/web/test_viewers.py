"""The viewers of the pages that watch a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from tensord.client.cli.web.viewers import Viewers


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def taken(viewers: Viewers) -> Any:
    viewer = viewers.join()
    assert viewer is not None
    return viewer


@in_a_loop
async def test_a_slow_page_gets_the_newest_view_and_how_many_it_missed() -> None:
    viewers = Viewers()
    viewer = taken(viewers)
    for number in range(5):
        viewers.show(str(number))
    assert list(map(json.loads, await viewer.next())) == [{"skipped": 4, "view": 4}]
    viewers.show("5")
    assert list(map(json.loads, await viewer.next())) == [{"skipped": 0, "view": 5}]


@in_a_loop
async def test_states_and_the_history_are_not_lost_behind_views() -> None:
    viewers = Viewers()
    viewer = taken(viewers)
    viewers.show("1")
    viewer.show_history("0")
    viewers.tell('{"state":"waiting"}')
    viewers.show("2")
    got = list(map(json.loads, await viewer.next()))
    assert got == [{"state": "waiting"}, {"skipped": 0, "view": 0}, {"skipped": 1, "view": 2}]


@in_a_loop
async def test_a_new_page_is_told_the_state() -> None:
    viewers = Viewers()
    viewers.tell('"connected"')
    assert await taken(viewers).next() == ['"connected"']


@in_a_loop
async def test_there_are_so_many_seats_and_no_more() -> None:
    viewers = Viewers(2)
    first = taken(viewers)
    assert taken(viewers) is not first
    assert viewers.join() is None
    viewers.leave(first)
    assert taken(viewers) is not first


@in_a_loop
async def test_it_is_known_whether_anybody_looks() -> None:
    viewers = Viewers()
    one, other = taken(viewers), taken(viewers)
    viewers.leave(one)
    assert (viewers.taken.is_set(), viewers.empty.is_set()) == (True, False)
    viewers.leave(other)
    assert (viewers.taken.is_set(), viewers.empty.is_set()) == (False, True)


@in_a_loop
async def test_a_page_that_waits_hears_of_the_end() -> None:
    viewers = Viewers()
    viewer = taken(viewers)
    waiting = asyncio.ensure_future(viewer.next())
    await asyncio.sleep(0)
    viewers.end()
    assert await waiting == []
    assert viewer.ended
