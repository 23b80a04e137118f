"""The service's log: for people or for programs, with ids, and no line that a client wrote."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest

from tensord.vm.log import PROCESSORS, log
from tensord.vm.service.process.logs import bound, logging_to


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_one_object_per_line_with_ids(capsys):
    with logging_to(form="json"):
        with bound(session=3):
            log.info("opened", name="a\nb", instruction=17)
        log.warning("closed", reason=ValueError("x"))
    first, second = lines(capsys.readouterr().err)
    assert (first["event"], first["level"], first["logger"]) == ("opened", "info", "tensord")
    assert (first["session"], first["instruction"], first["name"]) == (3, 17, "a\nb")
    assert first["timestamp"].endswith("Z")
    assert "session" not in second
    assert second["reason"] == "x"


def test_console_is_one_plain_line_where_nobody_looks(capsys):
    with logging_to():
        log.info("opened", session=3)
    (line,) = capsys.readouterr().err.splitlines()
    assert "opened" in line
    assert "session=3" in line
    assert "\x1b" not in line


def test_console_has_colours_on_a_terminal_only(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with logging_to():
        log.info("opened")
    assert "\x1b[" in terminal.getvalue()


def test_without_a_stderr_there_is_no_log_and_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with logging_to():
        log.error("nobody sees this")


def test_a_clients_name_writes_no_lines_and_no_escape_sequences(capsys):
    with logging_to():
        log.warning("opened", name="\x1b[2Jx\nerror: forged", event_of="y")
        log.warning("a\x1b[2J\nb")
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 2


def test_a_level_hides_what_is_below(capsys):
    with logging_to(level="warning"):
        log.info("hidden")
        log.warning("shown")
    shown = capsys.readouterr().err
    assert "hidden" not in shown
    assert "shown" in shown


@pytest.mark.parametrize("form", ["console", "json"])
def test_tracebacks_and_the_logs_of_libraries_arrive(form, capsys):
    empty: dict[str, int] = {}
    with logging_to(form=form):
        try:
            empty["gone"]
        except KeyError:
            log.exception("it failed")
        logging.getLogger("a.library").warning("from %s", "elsewhere")
    shown = capsys.readouterr().err
    assert "KeyError" in shown
    assert "from elsewhere" in shown
    if form == "json":
        assert len(shown.splitlines()) == 2


def test_a_file_is_appended_to(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_text("before\n")
    with logging_to(path, form="json"):
        log.info("opened")
    before, line = path.read_text().splitlines()
    assert before == "before"
    assert json.loads(line)["event"] == "opened"
    assert capsys.readouterr().err == ""


def test_afterwards_the_log_is_as_quiet_as_before(capsys):
    handlers, processors = logging.getLogger().handlers[:], PROCESSORS[:]
    with logging_to(level="debug"):
        log.debug("in between")
    assert (logging.getLogger().handlers, PROCESSORS) == (handlers, processors)
    log.debug("after")
    assert "after" not in capsys.readouterr().err
