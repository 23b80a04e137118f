"""The page of `tensord web` in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ....chromium import BROWSER, Browser, running
from ....daemon import Daemon
from ....puppet import eventually
from .test_web import serving

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("browser")) as one:
        yield one


def test_a_daemon_at_work_is_on_the_page_and_can_be_asked_about(browser: Browser, tmp_path: Path) -> None:
    with (
        Daemon.start(tmp_path, "--device", "cpu:0", "--device", "sim:0") as daemon,
        serving("--address", daemon.address) as (_, told),
        daemon.connect(name="trainer") as session,
    ):
        page = browser.open(told["url"])
        weights = session.asarray([1.0, 2.0], device="sim:0")
        session.publish("weights", weights)
        total = session.call("sum", [weights])[0]
        session.sync()
        page.press("2")
        eventually(lambda: "sum" in page.text("#instructions"))
        page.press("3")
        eventually(lambda: "weights" in page.text("#tensors"))
        page.press_on("#tensors tbody tr:nth-child(2)")  # the first one names the value that holds it
        eventually(lambda: "valid" in page.text("#details"))
        assert told["token"] not in page.evaluate("location.href")
        assert page.complaints() == []
        assert total.shape == ()
        daemon.kill()
        eventually(lambda: "does not answer" in page.text("#trouble"))
