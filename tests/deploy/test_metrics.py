"""The files for Prometheus and Grafana in deploy/metrics name existing metrics and labels only."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.metrics.family import MetricKind
from tensord.interpreter.metrics.table import FAMILIES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/metrics"
ALERTS = (FOLDER / "alerts.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PARTS = {MetricKind.HISTOGRAM: ("_bucket", "_count", "_sum")}
NAMES = {f"{one.name}{part}" for one in FAMILIES for part in PARTS.get(one.kind, ("",))}
LABELS = {"instance", "job", "le", *(label for one in FAMILIES for label in one.labels)}


def expressions() -> Iterator[str]:
    """The expressions of the dashboard's panels."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]


def named(text: str) -> set[str]:
    return set(re.findall(r"\btensord_\w+", text))


def test_every_metric_in_the_dashboard_and_the_alerts_is_one() -> None:
    used = named(ALERTS) | named(" ".join(expressions()))
    assert used <= NAMES
    assert len(used) > 25


def test_every_label_that_an_expression_names_is_one() -> None:
    text = "\n".join([*expressions(), *re.findall(r"expr: .*|^ +histogram.*", ALERTS, re.MULTILINE)])
    matched = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", text)
    grouped = [label for listed in re.findall(r"\bby \(([^)]*)\)", text) for label in listed.split(", ")]
    assert matched
    assert grouped
    assert {*matched, *grouped} <= LABELS
    legends = [target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    assert {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)} <= LABELS


def test_panels_have_places_of_their_own() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            assert x < 24, panel["title"]
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_list_in_the_documents_is_current() -> None:
    """If not: .venv/bin/python docs/make_metrics.py."""
    page = (ROOT / "docs/metrics.md").read_text()
    assert runpy.run_path(str(ROOT / "docs/make_metrics.py"))["renewed"](page) == page


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    return found


def test_promtool_takes_the_configuration_and_each_alert_fires_in_its_time(promtool: str, tmp_path: Path) -> None:
    for file in (FOLDER / "alerts.yml", FOLDER / "prometheus.yml", Path(__file__).with_name("alerts_test.yml")):
        shutil.copy(file, tmp_path)
    config = tmp_path / "prometheus.yml"
    config.write_text(config.read_text().replace("/etc/prometheus/tensord.token", "/dev/null"))
    for command in (["check", "config", str(config)], ["test", "rules", str(tmp_path / "alerts_test.yml")]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_test_and_says_what_to_do() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    tested = Path(__file__).with_name("alerts_test.yml").read_text()
    assert [alert for alert in alerts if f'alertname="{alert}"' not in tested] == []
    assert ALERTS.count("summary: ") == ALERTS.count("description: ") == len(alerts)
