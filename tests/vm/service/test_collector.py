"""The garbage collector of the daemon: the number of objects in one run."""

from __future__ import annotations

from pathlib import Path

from ...forked import run_script

# In a process of its own, in which no other code collects.
SCRIPT = """
import gc

from tensord.vm.service.daemon import GC_THRESHOLDS

LOOKED_AT = 250_000  # objects in one go, but for the oldest generation

looked_at = {0: [], 1: [], 2: []}
made = []
last = {0: 0, 1: 0}  # how many there were when that generation was collected


def note(phase, info):
    if phase == "start":
        generation = info["generation"]
        looked_at[generation].append(len(made) - last[min(generation, 1)])
        last.update(dict.fromkeys(range(min(generation, 1) + 1), len(made)))


gc.enable()
gc.collect()
gc.set_threshold(*GC_THRESHOLDS)
gc.callbacks.append(note)
made.extend([] for _ in range(1_200_000))
gc.callbacks.remove(note)
assert looked_at[0]
assert looked_at[1]
assert max(looked_at[0] + looked_at[1]) <= LOOKED_AT
assert not looked_at[2]
"""


def test_a_collection_of_what_is_young_looks_at_a_bounded_number_of_objects(tmp_path: Path) -> None:
    """All of the objects live on, as the compiled objects of a program do."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = run_script(str(tmp_path / "script.py"))
    assert ended.returncode == 0, ended.stderr
