"""Access to `tensord web`: tokens, hosts, origins."""

from __future__ import annotations

from http import HTTPStatus
from socket import gethostname

import pytest

from tensord.client.cli.web.access import Access, Refused

from ....each_case import each_case

TOKEN = "the-token-of-these-tests"  # noqa: S105 - of nothing else
ACCESS = Access(TOKEN, "gpu1.example", "tensord_web_9465")
RIGHT = {"Authorization": f"Bearer {TOKEN}"}


def status(headers: dict[str, str], cookies: dict[str, str] | None = None, **query: str) -> HTTPStatus:
    try:
        ACCESS.check({"Host": "127.0.0.1:9465"} | headers, cookies or {}, query)
    except Refused as refused:
        return refused.status
    return HTTPStatus.OK


@each_case(
    "host",
    [
        "127.0.0.1:9465",
        "localhost:9465",
        "LOCALHOST",
        "[::1]:9465",
        "192.168.1.7:9465",
        "GPU1.example:1",
        gethostname(),
    ],
)
def test_an_address_and_the_names_of_this_machine_may_be_asked(host: str) -> None:
    assert status({"Host": host} | RIGHT) == HTTPStatus.OK


@each_case(
    "host", ["evil.example:9465", "", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "evil@127.0.0.1@x"]
)
def test_a_name_that_was_pointed_at_this_machine_may_not(host: str) -> None:
    """DNS rebinding: the browser believes that the page belongs to that name."""
    assert status({"Host": host} | RIGHT) == HTTPStatus.FORBIDDEN


def test_the_page_itself_may_ask_and_no_other_site() -> None:
    assert status({"Origin": "http://127.0.0.1:9465"} | RIGHT) == HTTPStatus.OK
    for origin in ("http://127.0.0.1:8000", "http://localhost:9465", "https://evil.example", "null", "http://[", ""):
        assert status({"Origin": origin} | RIGHT) == HTTPStatus.FORBIDDEN


def test_a_token_comes_as_a_header_a_cookie_or_in_the_address() -> None:
    assert status({"Authorization": f"bearer {TOKEN}"}) == HTTPStatus.OK
    assert status({}, {"tensord_web_9465": TOKEN}) == HTTPStatus.OK
    assert status({}, token=TOKEN) == HTTPStatus.OK


@pytest.mark.parametrize("wrong", ["", "x", TOKEN[:-1], f"{TOKEN}x", "\udcff", "ü"])
def test_a_wrong_token_is_refused_wherever_it_comes(wrong: str) -> None:
    assert status({}) == HTTPStatus.UNAUTHORIZED
    assert status({"Authorization": f"Bearer {wrong}"}) == HTTPStatus.UNAUTHORIZED
    assert status({"Authorization": f"Basic {TOKEN}"}) == HTTPStatus.UNAUTHORIZED
    assert status({}, {"tensord_web_9465": wrong}) == HTTPStatus.UNAUTHORIZED
    assert status({}, {"tensord_web_9466": TOKEN}) == HTTPStatus.UNAUTHORIZED
    assert status({}, token=wrong) == HTTPStatus.UNAUTHORIZED
