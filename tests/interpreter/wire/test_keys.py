"""Key files: writing, reading, and refusals."""

from __future__ import annotations

import os
import stat

import pytest
import zmq.auth

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.whole_file import write_whole
from tensord.interpreter.wire import keys
from tensord.interpreter.wire.keys import PUBLIC_SUFFIX, create, is_key, read_public, read_secret

from ...full_disk import longest_file


def test_a_pair_is_in_pyzmqs_format_and_the_secret_is_private(tmp_path):
    before = os.umask(0)
    try:
        public, secret = create(tmp_path / "keys", "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert zmq.auth.load_certificate(secret) == read_secret(secret)
    assert zmq.auth.load_certificate(public) == (read_public(public), None)
    assert zmq.curve_public(read_secret(secret).secret) == read_public(public)


def test_certificates_of_pyzmq_are_read(tmp_path):
    public, secret = zmq.auth.create_certificates(tmp_path, "foreign")
    (tmp_path / "foreign.key_secret").chmod(0o600)
    assert read_secret(tmp_path / "foreign.key_secret") == zmq.auth.load_certificate(secret)
    assert read_public(tmp_path / "foreign.key") == zmq.auth.load_certificate(public)[0]


@pytest.mark.parametrize("room", [10, 150])  # for no file, and for the public key alone
def test_on_a_full_disk_there_is_no_key_and_nothing_in_the_way_of_a_later_one(tmp_path, room):
    with longest_file(room), pytest.raises(OSError, match="alice"):
        create(tmp_path / "keys", "alice")
    assert list((tmp_path / "keys").iterdir()) == []
    public, _ = create(tmp_path / "keys", "alice")
    assert read_public(public)


def test_without_the_public_key_there_is_no_secret_one(tmp_path, monkeypatch):
    def refuse(path, *rest, **options):
        if path.suffix == PUBLIC_SUFFIX:
            raise OSError(28, "No space left on device", str(path))
        write_whole(path, *rest, **options)

    monkeypatch.setattr(keys, "write_whole", refuse)
    with pytest.raises(OSError, match="No space left"):
        create(tmp_path, "alice")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    public, secret = create(tmp_path, "alice")
    before = secret.read_text()
    with pytest.raises(MetadataError, match="never overwritten"):
        create(tmp_path, "alice")
    public.unlink()
    with pytest.raises(MetadataError, match=r"alice\.key_secret exists"):
        create(tmp_path, "alice")
    assert secret.read_text() == before


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "x" * 65, "a\n"])
def test_a_name_stays_in_its_directory(name, tmp_path):
    with pytest.raises(MetadataError, match="not a name for a key"):
        create(tmp_path, name)


def test_what_cannot_be_used_says_why(tmp_path):
    public, secret = create(tmp_path, "alice")
    with pytest.raises(MetadataError, match="tensord keygen"):
        read_secret(tmp_path / "missing")
    public.chmod(0o600)
    with pytest.raises(MetadataError, match="holds no secret key"):
        read_secret(public)
    secret.write_text(secret.read_text().replace(read_public(public).decode(), "x" * 40))
    with pytest.raises(MetadataError, match="not that of the secret one"):
        read_secret(secret)
    secret.write_text("curve\n public-key = nonsense\n")
    with pytest.raises(MetadataError, match="not a key file"):
        read_secret(secret)
    secret.chmod(0o604)
    with pytest.raises(MetadataError, match=f"mode 0604.*chmod 600 {secret}"):
        read_secret(secret)


def test_keys_are_forty_characters_of_z85():
    assert is_key(b"a" * 40)
    assert not is_key(b"a" * 39)
    assert not is_key(b"a" * 39 + b" ")
    assert not is_key(b"a" * 40 + b"\n")
