"""The timeline in a third-party viewer: speedscope, in a browser without a window.

`make viewer` fetches speedscope; the browser is Chromium, from the system. Without one of the two the test is skipped.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.vm.tracing.analysis.sums.timeline import to_chrome

PAGE = Path(__file__).parents[4] / "out/viewer/node_modules/speedscope/dist/release/index.html"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # Chromium has no sandbox as root
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--allow-file-access-from-files",
    "--virtual-time-budget=8000",
    "--dump-dom",
)

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
    pytest.mark.skipif(not PAGE.exists(), reason="needs speedscope: make viewer"),
]


def shown_by_the_viewer(timeline: str, directory: Path) -> set[str]:
    """The names of the profiles that speedscope has found in the file."""
    content = base64.b64encode(timeline.encode()).decode()
    loader = directory / "timeline.js"
    loader.write_text(f"speedscope.loadFileFromBase64('timeline.json', '{content}')")
    done = subprocess.run(  # noqa: S603
        [str(BROWSER), *OPTIONS, f"--user-data-dir={directory}/profile", f"file://{PAGE}#localProfilePath={loader}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {html.unescape(title) for title in re.findall(r'<tr title="([^"]*)"', done.stdout)}


def threads_of(timeline: str) -> set[str]:
    """speedscope's names of the threads that have slices."""
    events: list[dict[str, Any]] = json.loads(timeline)["traceEvents"]
    names = {
        (event["name"], event["pid"], event.get("tid")): event["args"]["name"] for event in events if event["ph"] == "M"
    }
    busy = {(event["pid"], event["tid"]) for event in events if event["ph"] in {"X", "B"}}
    return {
        f"{names['process_name', pid, None]} (pid {pid}), {names['thread_name', pid, tid]} (tid {tid})"
        for pid, tid in busy
    }


def test_speedscope_finds_every_thread(tmp_path):
    with td.connect("local", devices=["cpu:0", "sim:0"]) as session, session.span("step 1"):
        x = session.asarray(np.ones((64, 64)))
        (x @ x).to_device("sim:0").numpy()
        (x.to_device("sim:0") + 1.0).numpy()
        timeline = to_chrome(session.trace())
    expected = threads_of(timeline)
    assert len(expected) > 2
    assert shown_by_the_viewer(timeline, tmp_path) == expected
