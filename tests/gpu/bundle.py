"""The wheels that a machine without network lacks: fetched here into a folder, unpacked there.

    python -m tests.gpu.bundle          # `make gpu-bundle`

The bundle has tensord's own dependences and those of its checks, with all their requirements, but for those that come
with a CUDA installation (NumPy, CuPy). On the machine only the wheels that its Python lacks are used, out of a folder
that is put on PYTHONPATH: nothing is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".gpu-bundle"
MANIFEST = "manifest.json"
LIMIT = 64 << 20  # bytes of the checkout and the wheels together
THERE = frozenset({"numpy"})  # comes with CuPy, which has to fit it
CHECKS = ("array-api-strict", "hypothesis", "pytest", "pytest-timeout")  # of the extra `dev`
BESIDES = ("array-api-compat",)  # scikit-learn wants it when its input is no NumPy array
# CUDA's driver as graphs need it, which not every CuPy brings. Bindings of the older CUDA work with newer drivers, too.
BINDINGS, OLDEST = "cuda-bindings", "cuda12"
HEAVY = ("scikit-learn", "scipy", "joblib", "narwhals")  # left out first, if the bundle is too large
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17", "manylinux2014", "manylinux1")


class Wheel(NamedTuple):
    """One wheel of a bundle. `floor`: the version that tensord needs at least, "" if any will do."""

    file: str
    sha256: str
    bytes: int
    floor: str = ""

    @property
    def name(self) -> str:
        """The distribution, normalised."""
        return normalised(self.file.partition("-")[0])

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return self.file.split("-")[1]

    def misfit(self, version: tuple[int, int]) -> str:
        """Why a Python of that version cannot use it; "" if it can."""
        python, abi, platform = self.file.removesuffix(".whl").split("-")[-3:]
        ours = f"cp{version[0]}{version[1]}"
        if "any" not in platform and "x86_64" not in platform:
            return f"is for {platform}"
        if any(tag in {f"py{version[0]}", ours} for tag in python.split(".")) or "abi3" in abi:
            return ""
        return f"is for {python}, this Python is {ours}"


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(project: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """The distributions to fetch: distribution -> its requirement ("rich>=13.7"), from the project's own lists."""
    table = tomllib.loads(project.read_text())["project"]
    extras = table["optional-dependencies"]
    wanted = [*table["dependencies"], *with_own_extras("examples", extras, table["name"]), *BESIDES]
    wanted += [text for text in extras["dev"] if name_of(text) in CHECKS]
    wanted += [text for text in extras[OLDEST] if name_of(text) == BINDINGS]
    return {name_of(text): text for text in wanted if name_of(text) not in THERE}


def with_own_extras(extra: str, extras: Mapping[str, Sequence[str]], project: str) -> Iterator[str]:
    """The requirements of an extra; in place of the project's own other extras ("tensord[special]"), their
    requirements.
    """
    for text in extras[extra]:
        if name_of(text) != project:
            yield text
            continue
        for other in text.partition("[")[2].rstrip("]").split(","):
            yield from with_own_extras(other.strip(), extras, project)


def name_of(requirement: str) -> str:
    """The distribution that a requirement is about."""
    found = re.match(r"[\w.-]+", requirement)
    return normalised(found[0]) if found else ""


def floor_of(requirement: str) -> str:
    """The least version that a requirement takes, "" if it takes any."""
    return requirement.partition(">=")[2].partition(",")[0]


def number(version: str) -> tuple[int, ...]:
    """A version to compare by its numbers; its suffix does not matter here."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


# -- fetching ----------------------------------------------------------------------------------------------------------


def request(python: str) -> dict[str, Any]:
    """The request of a bundle; a bundle of the same request is not made anew."""
    return {"python": python, "requirements": sorted(requirements().values()), "platforms": list(PLATFORMS)}


def fetch(folder: Path, python: str) -> dict[str, Any]:
    """Make the bundle, unless it is there; its manifest. RuntimeError if it cannot be made."""
    present = manifest_of(folder)
    if present and present["request"] == request(python) and not damaged(folder, present):
        return present
    with tempfile.TemporaryDirectory(prefix="gpu-bundle-") as temporary:
        download(Path(temporary), python)
        left_out = choose(Path(temporary), LIMIT - size_of_checkout())
        return keep(Path(temporary), folder, {"request": request(python), "left_out": left_out})


def download(into: Path, python: str) -> None:
    """Fetch the wheels, with all that they need, from the index that pip is set up for."""
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    target = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", *platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run(  # noqa: S603 - our own command
        [*command, "--dest", str(into), *target, *requirements().values()],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"pip could not fetch the wheels:\n{done.stderr.strip()}")


def choose(folder: Path, room: int) -> list[str]:
    """Delete present distributions, and the heavy ones if there is no room for them; the names of the latter."""
    for wheel in folder.glob("*.whl"):
        if normalised(wheel.name.partition("-")[0]) in THERE:
            wheel.unlink()
    if size_of(folder) <= room:
        return []
    heavy = [wheel for wheel in folder.glob("*.whl") if normalised(wheel.name.partition("-")[0]) in HEAVY]
    for wheel in heavy:
        wheel.unlink()
    if size_of(folder) > room:
        raise RuntimeError(f"the wheels take {size_of(folder):,} bytes; there is room for {room:,}")
    return sorted(normalised(wheel.name.partition("-")[0]) for wheel in heavy)


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def size_of_checkout() -> int:
    """Bytes of the files that git would carry."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - from the path, as make's
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = (ROOT / name.decode() for name in listed.stdout.split(b"\0") if name)
    return sum(path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())


def keep(origin: Path, folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Move the wheels into the folder, replacing its content, and write the manifest last."""
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    floors = {name: floor_of(text) for name, text in requirements().items()}
    wheels = []
    for path in sorted(origin.glob("*.whl")):
        content = path.read_bytes()
        (folder / path.name).write_bytes(content)
        wheel = Wheel(path.name, hashlib.sha256(content).hexdigest(), len(content))
        wheels.append(wheel._replace(floor=floors.get(wheel.name, ""))._asdict())
    manifest = {**manifest, "bytes": sum(wheel["bytes"] for wheel in wheels), "wheels": wheels}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


# -- using -------------------------------------------------------------------------------------------------------------


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """The manifest of a bundle; None if there is none that can be read."""
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return found


def damaged(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """The wheels that are missing, or differ from the fetched ones."""
    return [wheel["file"] for wheel in manifest["wheels"] if not intact(folder / wheel["file"], wheel["sha256"])]


def intact(path: Path, digest: str) -> bool:
    """Is the file there, with that SHA-256 digest?"""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


class Unpacked(NamedTuple):
    """The use of a bundle: wheels in use, those that this Python has itself, and unusable ones with the reason."""

    used: list[str]
    present: list[str]
    problems: list[str]


def unpack(folder: Path, into: Path, present: dict[str, str] | None = None) -> Unpacked:
    """Unpack the wheels that this Python lacks. `present`: distribution -> version, by default of this Python."""
    manifest = manifest_of(folder)
    if manifest is None:
        return Unpacked([], [], [f"there is no bundle in {folder.name}; `make gpu-bundle` makes one"])
    there = installed() if present is None else present
    result = Unpacked([], [], [f"left out, since it is too large: {name}" for name in manifest["left_out"]])
    for entry in manifest["wheels"]:
        wheel = Wheel(**entry)
        if number(there.get(wheel.name, "")) >= max(number(wheel.floor), (0,)):
            result.present.append(f"{wheel.name} {there[wheel.name]}")
        elif problem := unpack_one(folder, wheel, into):
            result.problems.append(f"{wheel.file} {problem}")
        else:
            result.used.append(f"{wheel.name} {wheel.version}")
    return result


def unpack_one(folder: Path, wheel: Wheel, into: Path) -> str:
    """Unpack one wheel; why it cannot be used, "" if it was."""
    if misfit := wheel.misfit(sys.version_info[:2]):
        return misfit
    if not intact(folder / wheel.file, wheel.sha256):
        return "is not as it was fetched; `make gpu-bundle` fetches it anew"
    with zipfile.ZipFile(folder / wheel.file) as archive:
        for member in archive.infolist():
            if not member.is_dir() and (name := installed_as(member.filename)):
                target = into / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(member))
    return ""


def installed_as(name: str) -> str | None:
    """The place of a wheel's member; None for scripts, headers, and paths that would leave the folder."""
    parts = Path(name).parts
    if name.startswith("/") or ".." in parts:
        return None
    if parts[0].endswith(".data"):
        return str(Path(*parts[2:])) if parts[1] in {"purelib", "platlib"} else None
    return name


def installed() -> dict[str, str]:
    """Distribution -> version, of this Python."""
    found: Iterable[Distribution] = distributions()
    return {normalised(name): one.version for one in found if (name := one.metadata["Name"])}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bundle", description="Fetch what a GPU machine lacks.")
    parser.add_argument("--python", default="3.12", help="the Python there (default: 3.12)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where to (default: {FOLDER.name})")
    options = parser.parse_args(arguments)
    try:
        manifest = fetch(options.folder, options.python)
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in summary(options.folder, manifest))
    return 0


def summary(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    """The bundle in words."""
    wheels, size = len(manifest["wheels"]), manifest["bytes"] / (1 << 20)
    yield f"{folder.name}: {wheels} wheels for Python {manifest['request']['python']}, {size:.1f} MiB"
    for name in manifest["left_out"]:
        yield f"left out, since it is too large: {name}"


if __name__ == "__main__":
    sys.exit(main())
