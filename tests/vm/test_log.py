"""The log of a machine in this process: like the daemon's unless the program has configured logging."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from tensord.vm.log import log
from tensord.vm.service.process.logs import logging_to

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


@pytest.fixture
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Removes pytest's own handlers, so that the test is a program without logging."""
    return lambda: monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_a_line_has_its_time_and_its_level_and_looks_as_the_daemons(
    unconfigured: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    unconfigured()
    log.warning("a kernel hangs", session=3, op="add")
    ours = capsys.readouterr().err
    with logging_to():
        log.warning("a kernel hangs", session=3, op="add")
    assert re.fullmatch(TIME + r" \[warning  \] a kernel hangs +\[tensord\] op='add' session=3\n", ours)
    assert ours[20:] == capsys.readouterr().err[20:]


def test_only_warnings_and_errors_appear_and_these_with_their_tracebacks(
    unconfigured: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    unconfigured()
    log.info("quiet")
    log.error("a fault", exc_info=ValueError("made by the test"))
    found = capsys.readouterr().err.splitlines()
    assert re.match(TIME + r" \[error    \] a fault", found[0])
    assert found[-1] == "ValueError: made by the test"
    assert "quiet" not in str(found)


def test_no_text_writes_lines_of_its_own(unconfigured: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    unconfigured()
    log.warning("two\nlines", name="a\nb\x1b[31m")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


@pytest.mark.parametrize("name", ["", "tensord"])
def test_a_program_that_configures_logging_has_its_own_form(
    name: str, unconfigured: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    unconfigured()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("mine: %(levelname)s %(message)s"))
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        log.warning("a kernel hangs", session=3, op="add")
    finally:
        logger.removeHandler(handler)
    assert capsys.readouterr().err == "mine: WARNING a kernel hangs op='add' session=3\n"
