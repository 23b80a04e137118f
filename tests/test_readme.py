"""The README's example is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def example() -> str:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603


def test_the_readme_example_runs_and_prints_what_it_says():
    result = run(example())
    assert result.returncode == 0, result.stderr
    promised = [line.partition("  # ")[2] for line in example().splitlines() if line.lstrip().startswith("print(")]
    assert result.stdout.splitlines() == promised


def test_the_readme_example_has_about_ten_lines():
    lines = [line for line in example().splitlines() if line.strip()]
    assert 8 <= len(lines) <= 12
