"""The bundle of wheels: its content, and the wheels that a machine takes out of it."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile

import pytest

from ..each_case import each_case
from . import bundle
from .bundle import MANIFEST, Wheel, choose, floor_of, installed_as, keep, requirements, unpack

HERE = sys.version_info[:2]


def make_wheel(folder, name="fine", tags="py3-none-any", members=None):
    """A wheel with these members, by default one module of its name."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.5-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in (members or {f"{name}.py": "x = 1\n"}).items():
            archive.writestr(member, content)
    return path


def make_bundle(folder, *wheels, left_out=()):
    """A bundle of wheels that were made there."""
    entries = [
        Wheel(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)._asdict()
        for path in wheels
    ]
    (folder / MANIFEST).write_text(json.dumps({"wheels": entries, "left_out": list(left_out)}))


def test_it_has_what_the_project_needs_but_for_what_comes_with_cuda():
    wanted = requirements()
    assert {"pyzmq", "msgpack", "structlog", "click", "rich", "array-api-strict", "array-api-compat"} <= set(wanted)
    assert "numpy" not in wanted
    assert wanted["cuda-bindings"].endswith("<13")  # without which there are no graphs
    assert not any(name.startswith("cupy") for name in wanted)
    assert floor_of(wanted["rich"]) == "13.7"
    assert floor_of("anything") == ""


def test_what_is_missing_is_unpacked_and_what_is_there_is_left_alone(tmp_path):
    folder, site = tmp_path / "bundle", tmp_path / "site"
    make_bundle(folder, make_wheel(folder, "one"), make_wheel(folder, "two"), left_out=["scipy"])
    found = unpack(folder, site, present={"two": "1.0"})
    assert (found.used, found.present) == (["one 1.5"], ["two 1.0"])
    assert found.problems == ["left out, since it is too large: scipy"]
    assert sorted(path.name for path in site.iterdir()) == ["one.py"]


@pytest.mark.parametrize(("version", "used"), [("2.1", []), ("2.10", []), ("1.9", ["one 1.5"]), ("", ["one 1.5"])])
def test_what_is_there_but_too_old_is_unpacked(tmp_path, version, used):
    folder = tmp_path / "bundle"
    make_bundle(folder, make_wheel(folder, "one"))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["wheels"][0]["floor"] = "2.0"
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert unpack(folder, tmp_path / "site", present={"one": version}).used == used


def test_a_damaged_wheel_is_not_used(tmp_path):
    folder = tmp_path / "bundle"
    path = make_wheel(folder)
    make_bundle(folder, path)
    path.write_bytes(path.read_bytes() + b"x")
    (problem,) = unpack(folder, tmp_path / "site", present={}).problems
    assert "make gpu-bundle" in problem
    assert not (tmp_path / "site").exists()


def test_without_a_bundle_one_is_told_how_to_make_it(tmp_path):
    (problem,) = unpack(tmp_path, tmp_path / "site").problems
    assert "make gpu-bundle" in problem


@each_case(
    ("tags", "fits"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        (f"cp{HERE[0]}{HERE[1]}-cp{HERE[0]}{HERE[1]}-manylinux_2_28_x86_64", True),
        (f"cp{HERE[0]}{HERE[1]}-abi3-manylinux_2_26_x86_64.manylinux_2_28_x86_64", True),
        ("cp27-cp27m-manylinux1_x86_64", False),
        ("py3-none-win_amd64", False),
    ],
)
def test_a_wheel_for_another_python_or_platform_does_not_fit(tags, fits):
    assert (Wheel(f"name-1.0-{tags}.whl", "", 0).misfit(HERE) == "") is fits


@each_case(
    ("member", "where"),
    [
        ("package/module.py", "package/module.py"),
        ("package-1.0.data/purelib/package/x.py", "package/x.py"),
        ("package-1.0.data/scripts/run", None),
        ("/etc/passwd", None),
        ("../../outside", None),
        ("package/../../outside", None),
    ],
)
def test_nothing_of_a_wheel_gets_out_of_the_folder(member, where):
    assert installed_as(member) == where


def test_what_is_too_large_is_left_out_and_named(tmp_path):
    for name in ("small", "scipy", "scikit_learn", "numpy"):
        (tmp_path / f"{name}-1.0-py3-none-any.whl").write_bytes(bytes(100))
    assert choose(tmp_path, 1_000) == []
    assert not list(tmp_path.glob("numpy*"))  # it comes with CuPy
    assert choose(tmp_path, 150) == ["scikit-learn", "scipy"]
    with pytest.raises(RuntimeError, match="there is room for 50"):
        choose(tmp_path, 50)


def test_a_bundle_that_is_there_is_not_fetched_again(tmp_path, monkeypatch):
    fetched = []

    def download(into, python):
        fetched.append(python)
        make_wheel(into)

    monkeypatch.setattr(bundle, "download", download)
    folder = tmp_path / "bundle"
    assert bundle.main(["--folder", str(folder)]) == 0
    assert bundle.main(["--folder", str(folder)]) == 0
    assert fetched == ["3.12"]
    bundle.main(["--folder", str(folder), "--python", "3.13"])
    (wheel,) = folder.glob("*.whl")
    wheel.write_bytes(b"damaged")
    bundle.main(["--folder", str(folder), "--python", "3.13"])
    assert fetched == ["3.12", "3.13", "3.13"]


def test_a_failure_of_pip_is_told(tmp_path, monkeypatch, capsys):
    def download(_into, _python):
        raise RuntimeError("pip could not fetch the wheels:\nno network")

    monkeypatch.setattr(bundle, "download", download)
    assert bundle.main(["--folder", str(tmp_path / "bundle")]) == 1
    assert "no network" in capsys.readouterr().err


def test_the_manifest_is_written_last(tmp_path):
    folder = tmp_path / "bundle"
    make_wheel(tmp_path / "origin")
    manifest = keep(tmp_path / "origin", folder, {"request": {}, "left_out": []})
    assert not bundle.damaged(folder, manifest)
    assert json.loads((folder / MANIFEST).read_text()) == manifest
