"""The allow list: the public keys of clients that may connect over tcp, read again whenever the file changes."""

from __future__ import annotations

import os
from pathlib import Path

from ....interpreter.wire.keys import is_key
from ...log import log
from ..process.errors import StartError


class AllowList:
    """Public keys and the names beside them. One line each: the key, a space, a name; lines with # are comments.

    A key may itself begin with #; such a line is a key, not a comment. If the file becomes unreadable, or writable by
    others, no key is allowed. A malformed line allows no key and does not affect other lines.
    """

    def __init__(self, path: Path) -> None:
        """Read the file for the first time; StartError if it is unusable."""
        self.path = path
        self.names: dict[bytes, str] = {}
        self._stamp: tuple[int, int, int] | None = None
        problems = self._read()
        if problems:
            raise StartError(f"{path}: {problems[0]}")

    def name_of(self, key: bytes) -> str | None:
        """The name beside a key (Z85), as of now; None if it is not allowed."""
        try:
            changed = _stamp(self.path.stat()) != self._stamp
        except OSError:
            changed = True
        if changed:
            for problem in self._read():
                log.warning("the allow list has a fault", file=str(self.path), problem=problem)
        return self.names.get(key)

    def _read(self) -> list[str]:
        """Read the file, and return its problems."""
        self.names, self._stamp = {}, None
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_mode & 0o022:
                    return [f"others may write it (mode {found.st_mode & 0o7777:04o}): run chmod 600 {self.path}"]
                lines = file.read().splitlines()
        except OSError as error:
            return [f"{error.strerror}. It lists the clients' public keys, one per line, as tensord keygen prints them"]
        self._stamp = _stamp(found)
        return [problem for number, line in enumerate(lines, 1) if (problem := self._take(line, number))]

    def _take(self, line: bytes, number: int) -> str:
        key, _, name = line.strip().partition(b" ")
        if is_key(key):
            self.names[key] = name.strip().decode(errors="replace") or key.decode()
        elif key and not key.startswith(b"#"):
            return f"line {number} is no key: write the line that tensord keygen prints"
        return ""


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino
