"""Compiled kernels lie in a directory of the user's own, chosen before CuPy is imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.streams.cuda.kernel_cache import VARIABLE, cached_kernels, check, directory_of, store_kernels_in


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has not set the variable; a test's value is removed afterwards."""
    monkeypatch.setenv(VARIABLE, "")


def test_it_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert directory_of() == tmp_path / "tensord" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert directory_of() == Path("/home/somebody/.cache/tensord/kernels")


def test_a_configured_directory_goes_before_that_and_the_variable_before_both(monkeypatch, tmp_path):
    assert directory_of(tmp_path) == tmp_path
    monkeypatch.setenv(VARIABLE, "/mine")
    assert directory_of(tmp_path) == Path("/mine")
    store_kernels_in(tmp_path / "never")
    assert os.environ[VARIABLE] == "/mine"
    assert not (tmp_path / "never").exists()


def test_without_a_home_the_error_says_what_to_set(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(MetadataError, match=r"set kernel_cache, or \$CUPY_CACHE_DIR"):
        directory_of()


def test_it_is_made_private_and_cupy_is_told(tmp_path):
    directory = tmp_path / "cache" / "kernels"
    store_kernels_in(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert os.environ[VARIABLE] == str(directory)


@pytest.mark.parametrize("act", [check, store_kernels_in])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path, act):
    tmp_path.chmod(0o777)
    with pytest.raises(MetadataError, match=f"others may write there.*chmod 700 {tmp_path}"):
        act(tmp_path)
    assert os.environ[VARIABLE] == ""


@pytest.mark.parametrize("act", [check, store_kernels_in])
def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch, act):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(MetadataError, match="belongs to uid"):
        act(tmp_path)


@pytest.mark.parametrize("act", [check, store_kernels_in])
def test_a_place_that_is_no_directory_is_refused(tmp_path, act):
    (tmp_path / "file").touch()
    with pytest.raises(MetadataError, match="cannot keep compiled kernels"):
        act(tmp_path / "file" / "kernels")


def test_the_check_makes_nothing(tmp_path):
    check(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_compiled_kernels_are_counted_and_nothing_else(tmp_path):
    assert cached_kernels(tmp_path / "nowhere") == (0, 0)
    (tmp_path / "one.cubin").write_bytes(b"12345")
    (tmp_path / "two.cubin").write_bytes(b"123")
    (tmp_path / "two.cubin.cu").write_bytes(b"source")
    (tmp_path / "tmpabc").write_bytes(b"half of one")
    assert cached_kernels(tmp_path) == (2, 8)
