"""Addresses of daemons, their locks, and the search for a running daemon.

A daemon holds a lock file per address for as long as it runs (vm/service/process/instance.py), so the kernel knows
whether a daemon runs, also after a crash. A socket file proves nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from ..errors import MetadataError

ADDRESS_VARIABLE: Final = "TENSORD_ADDRESS"
PATH_LIMIT: Final = 107  # sun_path has 108 bytes, one of them the final NUL
ANY_HOST: Final = "*"

_TCP: Final = re.compile(r"(\[[^\]\s]+\]|[^:\[\]\s/]+):(\d{1,5})")
_FORMS: Final = '"ipc:///an/absolute/path" or "tcp://HOST:PORT"'
_SIOCGIFADDR: Final = 0x8915


@dataclass(frozen=True, slots=True)
class Address:
    """A checked address. ipc has a `path`; tcp a `host`, without brackets, and a `port`, 0 for any free one."""

    text: str
    kind: str
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        return self.text


def runtime_directory() -> Path:
    """The directory of the default socket and of the locks of tcp addresses, for this user alone."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/"):  # the XDG specification ignores relative paths
        return Path(base) / "tensord"
    return Path(f"/tmp/tensord-{os.getuid()}")  # noqa: S108 - its owner is checked: is_private


def default_address() -> str:
    """The address of a daemon that is started without one."""
    return f"ipc://{runtime_directory() / 'socket'}"


def parse(address: str) -> Address:
    """The parts of an address; MetadataError says what is wrong with it and what to write instead."""
    kind, separator, rest = address.partition("://")
    if separator and kind == "ipc":
        return _parse_ipc(address, rest)
    if separator and kind == "tcp":
        return _parse_tcp(address, rest)
    raise MetadataError(f"{address!r} is not an address of a daemon: write {_FORMS}")


def for_client(address: str) -> Address:
    """`parse` for an address to connect to, which has to name one host and one port."""
    found = parse(address)
    if found.kind == "tcp" and (found.host in (ANY_HOST, "0.0.0.0", "::") or not found.port):  # noqa: S104 - refused here
        raise MetadataError(f"{address!r} is an address to listen on: to connect, name the daemon's host and port")
    return found


def _parse_ipc(address: str, path: str) -> Address:
    length = len(os.fsencode(path))
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise MetadataError(f"{address!r} needs the absolute path of a socket, as in {default_address()!r}")
    if length > PATH_LIMIT:
        raise MetadataError(
            f"{address!r}: a socket's path has at most {PATH_LIMIT} bytes, this one has {length}; "
            f"choose a shorter one, such as {'ipc:///tmp/tensord-' + str(os.getuid()) + '/socket'!r}"
        )
    return Address(address, "ipc", path=path)


def _parse_tcp(address: str, rest: str) -> Address:
    match = _TCP.fullmatch(rest)
    if match is None or int(match[2]) > 0xFFFF:
        raise MetadataError(
            f'{address!r} is not a tcp address: write "tcp://HOST:PORT", with a port up to 65535 and IPv6 hosts in '
            'brackets, as in "tcp://127.0.0.1:7700" or "tcp://[::1]:7700"'
        )
    host = match[1]
    if host.startswith("["):
        host = host[1:-1]
        with suppress(ValueError):
            IPv6Address(host)
            return Address(address, "tcp", host=host, port=int(match[2]))
        raise MetadataError(f"{address!r}: {host!r} is not an IPv6 address")
    return Address(address, "tcp", host=host, port=int(match[2]))


# -- resolving addresses -----------------------------------------------------------------------------------------------


def resolve(host: str) -> IPv4Address | IPv6Address | None:
    """The one IP address behind a literal, a network interface of this machine or a host name; None for any ("*").

    The listener has to bind to the resolved address, not to the name, which may resolve to an unchecked one.
    """
    if host == ANY_HOST:
        return None
    with suppress(ValueError):
        return ip_address(host)
    if host in {name for _, name in socket.if_nameindex()}:
        return _of_interface(host)
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MetadataError(
            f"{host!r} is neither an IP address, an interface nor a known host ({error.strerror})"
        ) from None
    return ip_address(addresses[0][4][0])


def _of_interface(name: str) -> IPv4Address:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise MetadataError(
                f"interface {name!r} has no IPv4 address ({error.strerror}); write an IP address"
            ) from None
    return IPv4Address(answer[20:24])


def is_loopback(address: str) -> bool:
    """Whether only processes of this machine reach the address: ipc, or tcp on a loopback address, by any name."""
    parsed = parse(address)
    if parsed.kind == "ipc":
        return True
    ip = resolve(parsed.host)
    mapped = getattr(ip, "ipv4_mapped", None)
    return ip is not None and (mapped or ip).is_loopback


# -- running daemons ---------------------------------------------------------------------------------------------------


def lock_path(address: str) -> Path:
    """The lock file of an address: next to its socket, or for tcp in the runtime directory."""
    parsed = parse(address)
    if parsed.kind == "ipc":
        return Path(f"{parsed.path}.lock")
    host = re.sub(r"[^\w.*]", "-", str(resolve(parsed.host) or ANY_HOST))
    return runtime_directory() / f"tcp-{host}-{parsed.port}.lock"


def is_private(directory: Path) -> bool:
    """Whether a directory is this user's, and closed to all other users."""
    try:
        found = directory.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


def pid_of(address: str) -> int | None:
    """The pid of the process that holds an address, in its own pid namespace; 0 if unknown, None if no process does.

    Probes with a shared lock, so that two probes do not see each other; a daemon that starts at that moment
    distinguishes a probe from a daemon, see instance.py. Never blocks.
    """
    try:
        descriptor = os.open(lock_path(address), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0).strip()
        return int(written) if written.isdigit() else 0
    finally:
        os.close(descriptor)
    return None


def find_daemon() -> str | None:
    """$TENSORD_ADDRESS, else the default address if a daemon of this user runs there, else None.

    A socket in a directory that others may write to could be any user's, and is ignored.
    """
    named = os.environ.get(ADDRESS_VARIABLE)
    if named:
        return named
    address = default_address()
    return address if is_private(runtime_directory()) and _is_held(address) else None


def _is_held(address: str) -> bool:
    try:
        return pid_of(address) is not None
    except MetadataError:  # $XDG_RUNTIME_DIR is too long for a socket: no daemon can be there
        return False


def is_local(address: str) -> bool:
    """Return whether it is the address of a machine in this process."""
    return address.partition(":")[0] == "local"
