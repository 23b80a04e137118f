"""One question to the daemon answers all scrapes within a second, and only authorised clients get pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from threading import Event
from typing import Any

from tensord.client.cli.metrics.pages import Pages
from tensord.client.cli.metrics.scrapes import FRESH, KINDS, Scrapes
from tensord.client.cli.metrics.server import HttpRequest
from tensord.interpreter.errors import ConnectionLost
from tensord.interpreter.metrics.family import Figures

TOKEN = "0123456789abcdef"  # noqa: S105 - of a test


class Daemon:
    """The daemon's answers."""

    def __init__(self) -> None:
        self.looks = self.rendered = 0
        self.now = 100.0
        self.ill: list[str] = []
        self.gone = False
        self.answers = Event()
        self.answers.set()

    def figures(self) -> Figures:
        assert self.answers.wait(10)
        self.looks += 1
        return Figures({"look": self.looks})

    def health(self) -> list[str]:
        self.looks += 1
        if self.gone:
            raise ConnectionLost("the daemon is gone")
        return self.ill

    def render(self, figures: Figures, accept: str) -> tuple[str, bytes]:
        self.rendered += 1
        return "text/plain", f"{figures.machine['look']} {accept}".encode()


@contextmanager
def scraped(daemon: Daemon) -> Iterator[Scrapes]:
    scrapes = Scrapes(daemon, daemon.render, clock=lambda: daemon.now)
    try:
        yield scrapes
    finally:
        scrapes.close()


def test_scrapes_within_a_second_get_one_answer() -> None:
    daemon = Daemon()

    async def run(scrapes: Scrapes) -> None:
        daemon.answers.clear()
        scraping = [asyncio.create_task(scrapes.metrics("a")) for _ in range(1000)]
        await asyncio.sleep(0)
        daemon.answers.set()
        assert set(await asyncio.gather(*scraping)) == {("text/plain", b"1 a")}
        daemon.now += FRESH / 2
        assert (await scrapes.metrics("b"))[1] == b"1 b"
        daemon.now += FRESH
        assert (await scrapes.metrics("a"))[1] == b"2 a"

    with scraped(daemon) as scrapes:
        asyncio.run(run(scrapes))
    assert daemon.looks == 2


def test_scrapers_that_accept_ever_other_things_are_not_remembered() -> None:
    daemon = Daemon()

    async def run(scrapes: Scrapes) -> None:
        for n in range(10 * KINDS):
            await scrapes.metrics(str(n))
        before = daemon.rendered
        await scrapes.metrics("0")
        assert daemon.rendered == before
        await scrapes.metrics(str(10 * KINDS - 1))
        assert daemon.rendered == before + 1

    with scraped(daemon) as scrapes:
        asyncio.run(run(scrapes))


def ask(scrapes: Scrapes, path: str, token: str | None, given: str = "", method: str = "GET") -> tuple[int, str]:
    headers = {"authorization": given} if given else {}
    response = asyncio.run(Pages(scrapes, token).answer(HttpRequest(method, path, headers)))
    return response.status, response.body.decode()


def test_without_the_token_there_are_no_metrics() -> None:
    daemon = Daemon()
    with scraped(daemon) as scrapes:
        for given in ("", TOKEN, f"Basic {TOKEN}", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"):
            assert ask(scrapes, "/metrics", TOKEN, given)[0] == HTTPStatus.UNAUTHORIZED
        assert daemon.looks == 0
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            assert ask(scrapes, "/metrics", TOKEN, given)[0] == HTTPStatus.OK
        assert ask(scrapes, "/metrics", None)[0] == HTTPStatus.OK


def test_health_is_for_everybody_and_its_reasons_for_those_with_the_token() -> None:
    daemon = Daemon()

    def told(token: str | None, given: str = "") -> Any:
        daemon.now += 2 * FRESH
        return ask(scrapes, "/healthz", token, given)

    with scraped(daemon) as scrapes:
        assert told(TOKEN) == (200, "healthy\n")
        daemon.ill = ["sim:0: is lost"]
        assert told(TOKEN) == (503, "needs a look\n")
        assert told(TOKEN, f"Bearer {TOKEN}") == (503, "needs a look\nsim:0: is lost\n")
        daemon.gone = True
        assert told(None) == (503, "unreachable\nthe daemon is gone\n")


def test_other_pages_and_methods() -> None:
    with scraped(Daemon()) as scrapes:
        assert ask(scrapes, "/", None)[0] == HTTPStatus.NOT_FOUND
        assert ask(scrapes, "/metrics", None, method="POST")[0] == HTTPStatus.METHOD_NOT_ALLOWED
