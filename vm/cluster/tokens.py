"""Checks, before Ray connects, what could prevent that: is a token needed, is it right, are the versions equal?"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...interpreter.errors import NoDaemon
from .errors import ClusterError
from .gcs import CallOutcome, GcsReply, call

CALL_TIMEOUT: Final = 3.0
MODE, TOKEN, FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
START_ADVICE: Final = (
    "start one with `ray start --head`, name another with --ray or $RAY_ADDRESS, or try "
    "`tensord cluster up --simulate 2`"
)
RAY_ONLY_VARIABLES: Final = (
    "RAY_USE_TLS",
    "RAY_ENABLE_K8S_TOKEN_AUTH",
)  # with one of these, only Ray's own code can connect
TOKEN_ADVICE: Final = (
    f"`ray get-auth-token` prints it on the cluster's head; set it as ${TOKEN}, or write it to ~/.ray/auth_token"
)


class Token(NamedTuple):
    """A token, and where it was found."""

    text: str
    source: str


def host_and_port(address: str) -> tuple[str, int] | None:
    """The host and the port of a Ray cluster's address; None if it has another form."""
    host, _, port = address.rpartition(":")
    if not host or "://" in address or not (port.isdecimal() and 0 < int(port) < 1 << 16):
        return None
    return host.strip("[]"), int(port)


def settle_token(address: str, environment: MutableMapping[str, str], ray: str) -> None:
    """Make Ray use its token, if the Ray cluster at the address asks for one.

    `ray`: the version of Ray in this process.

    NoDaemon if no Ray is there; ClusterError if the token is missing or wrong, or if the versions differ.
    """
    endpoint = host_and_port(address)
    if endpoint is None or _is_for_ray_alone(environment):
        return
    reply = _ask_gcs(address, endpoint, "")
    if reply.outcome is CallOutcome.FOREIGN:
        raise ClusterError(
            f"the process at {address} is not a Ray cluster: use the address that `ray start --head` has printed; its "
            "port is 6379 by default"
        )
    if reply.outcome is CallOutcome.REFUSED:
        token = _own_token(address, environment)
        reply = _ask_gcs(address, endpoint, token.text)
        if reply.outcome is CallOutcome.REFUSED:
            raise ClusterError(
                f"Ray at {address} does not accept the token of {token.source}. The right one: {TOKEN_ADVICE}"
            )
        environment[MODE] = "token"
    check_versions(address, reply.versions, {"ray": ray, "python": platform.python_version()})


def check_versions(address: str, remote: Mapping[str, str], local: Mapping[str, str]) -> None:
    """Raise ClusterError unless the versions of Ray are equal, and those of Python except for the last number."""
    differ = [
        f"{name} {version} there and {local[name]} here"
        for name, version in remote.items()
        if _counted(name, version) != _counted(name, local[name])
    ]
    if differ:
        differences = ", ".join(differ)
        raise ClusterError(f"the Ray cluster at {address} has other versions: {differences}; install the same here")


def _counted(name: str, version: str) -> str:
    """The part of a version that must be equal."""
    return version.rpartition(".")[0] if name == "python" else version


def asks_for_token(address: str, environment: Mapping[str, str]) -> bool:
    """Whether the Ray cluster refuses callers without a token. If that cannot be found out, $RAY_AUTH_MODE decides."""
    endpoint = host_and_port(address)
    outcome = CallOutcome.UNKNOWN
    if endpoint is not None and not _is_for_ray_alone(environment):
        outcome = _ask_gcs(address, endpoint, "").outcome
    if outcome in (CallOutcome.ADMITTED, CallOutcome.REFUSED):
        return outcome is CallOutcome.REFUSED
    return environment.get(MODE, "").lower() in ("token", "k8s")


def check_token(nodes: Iterable[Mapping[str, Any]], *, asks: bool) -> None:
    """Raise ClusterError if Ray can be reached from other machines and anyone may use it. `asks`: whether it asks for a
    token."""
    beyond = [one["NodeManagerAddress"] for one in nodes if one["Alive"] and not is_loopback(one["NodeManagerAddress"])]
    if beyond and not asks:
        raise ClusterError(
            f"other machines can reach Ray (at {beyond[0]}), and it asks for no token, so anyone who reaches it can "
            "run code as this user: make a token with `RAY_AUTH_MODE=token ray get-auth-token --generate`, copy "
            "~/.ray/auth_token to every node, and restart Ray with RAY_AUTH_MODE=token on each"
        )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_for_ray_alone(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").lower() in ("1", "true") for name in RAY_ONLY_VARIABLES)


def _ask_gcs(address: str, endpoint: tuple[str, int], token: str) -> GcsReply:
    try:
        return call(*endpoint, token, CALL_TIMEOUT)
    except OSError as error:
        raise NoDaemon(f"no Ray cluster is running at {address} ({error.strerror or error}): {START_ADVICE}") from None


def _own_token(address: str, environment: Mapping[str, str]) -> Token:
    """The token with which Ray would connect. ClusterError if there is none, or if Ray would not use it."""
    mode = environment.get(MODE, "").lower()
    if mode not in ("", "token"):
        raise ClusterError(f"Ray at {address} asks for a token, but {MODE} is {mode!r} here: set {MODE}=token")
    found = find_token(environment)
    if found is None:
        raise ClusterError(f"Ray at {address} asks for a token, but there is none here: {TOKEN_ADVICE}")
    return found


def find_token(environment: Mapping[str, str]) -> Token | None:
    """The token of this user, searched for as Ray does, in the same order; None if there is none."""
    if environment.get(TOKEN):
        return Token(environment[TOKEN].strip(), f"${TOKEN}")
    named = environment.get(FILE)
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    return Token(text, str(file)) if text else None
