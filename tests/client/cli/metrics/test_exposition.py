"""The metrics are valid Prometheus and OpenMetrics texts, as read by the parsers of both."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

import tensord as td
from tensord.client.cli.metrics.exposition import exposition
from tensord.interpreter.metrics.family import Figures
from tensord.interpreter.metrics.table import FAMILIES

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def figures() -> Figures:
    """The figures of a machine that has done many kinds of work."""
    with td.connect("local", devices=["cpu:0", "sim:0"], name='a "quoted\\ name') as session:
        x = session.asarray([1.0, 2.0, 2.0])
        session.call("unique_values", [x.to_device("sim:0")])[0].numpy()
        session.xp.sum(x).item()
        machine, *sessions = session._core.answers.query("metrics")
    return Figures(machine, sessions, 0.001, (3, 4096), [(sessions[0]["id"], "cpu:0", 24)])


def test_both_forms_are_read_by_their_parsers_and_say_the_same(figures: Figures) -> None:
    kind, text = exposition(figures, "")
    other_kind, other = exposition(figures, OPENMETRICS)
    assert kind.startswith("text/plain")
    assert other_kind.startswith("application/openmetrics-text")
    read = {sample.name: sample for family in prometheus(text.decode()) for sample in family.samples}
    again = {sample.name: sample for family in openmetrics(other.decode()) for sample in family.samples}
    assert read.keys() == again.keys()
    assert read["tensord_up"].value == 1
    assert read["tensord_session_bytes"].labels["client"].startswith('a "quoted\\ ')
    assert {name for name in read if not name.startswith("tensord_")} == set()


def test_every_family_is_described_with_its_kind(figures: Figures) -> None:
    text = exposition(figures, "")[1].decode()
    for family in FAMILIES:
        if family.samples(figures):
            assert f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n" in text


def test_promtool_finds_nothing_to_say(figures: Figures) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    done = subprocess.run(  # noqa: S603
        [promtool, "check", "metrics"], input=exposition(figures, "")[1], capture_output=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
