"""Without the extra, only the commands on clusters fail, and they name the missing package."""

from __future__ import annotations

import subprocess
import sys

# Every import of Ray fails, as without the extra.
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray":
            raise ModuleNotFoundError(f"no {name}")
sys.meta_path.insert(0, Without())
import importlib.metadata as metadata
version = metadata.version
def without(name):
    if name == "ray":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without
"""


def run(program, *arguments):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", WITHOUT + program, *arguments], capture_output=True, text=True, check=False
    )


def test_tensord_and_the_supervisors_core_import_and_work():
    modules = ("supervisor", "keeper", "lifecycle", "specification", "configuration", "child")
    imports = "\n".join(f"import tensord.vm.cluster.{name}" for name in modules)
    ended = run(f"{imports}\nimport tensord\nwith tensord.connect('local') as s: print(s.asarray([1.0]).tolist())")
    assert (ended.stdout, ended.stderr) == ("[1.0]\n", "")


COMMANDS = """
from tensord.client.cli.main import main
for command in ("status", "down", "up", "logs", "doctor"):
    try:
        main(["cluster", command])
    except SystemExit as left:
        print(command, left.code)
"""


def test_the_commands_say_what_to_install():
    ended = run(COMMANDS)
    assert ended.stderr.splitlines() == ['tensord: Ray is not installed here: pip install "tensord[cluster]"'] * 4
    assert "fail  ray    is not installed here" in ended.stdout
    codes = [line for line in ended.stdout.splitlines() if line.endswith(" 1")]
    assert codes == ["status 1", "down 1", "up 1", "logs 1", "doctor 1"]
