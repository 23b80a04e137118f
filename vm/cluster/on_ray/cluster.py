"""A cluster of supervisors as an operator's process sees it: found, listed, asked. Ray's errors become tensord's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError, RayTaskError

from ....interpreter.errors import TensordError
from ..specification import index_of

START: Final = "start one with `ray start --head`, name one with --ray or $RAY_ADDRESS, or try `--simulate 2`"
ANSWER: Final = 5.0  # seconds for a supervisor to answer
QUIET: Final = {
    "log_to_driver": False,
    "logging_level": "CRITICAL",
    "configure_logging": False,
    "include_dashboard": False,
}

Found = TypeVar("Found")


class ClusterError(TensordError):
    """Something is wrong with a cluster, or with Ray: the message says what to do."""


@contextmanager
def connected(address: str | None, namespace: str) -> Iterator[None]:
    """A connection to the Ray cluster that runs; a ClusterError says why there is none."""
    if ray.is_initialized():
        yield
        return
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where.startswith("ray://"):
        raise ClusterError(
            f"{where}: Ray Client is not supported, since it needs the same versions of Python and Ray on both sides: "
            "run this on a node of the cluster, or through `ray job submit`"
        )
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        ray.init(address=where, namespace=namespace, **QUIET)
    except ConnectionError as error:
        raise ClusterError(f"no Ray cluster is running at {where} ({first_line(error)}): {START}") from None
    except RuntimeError as error:
        if "ersion mismatch" in str(error):
            raise ClusterError(f"{first_line(error, 3)}: install the same versions on all nodes") from None
        raise ClusterError(f"Ray at {where} takes no connection: {first_line(error)}") from None
    except (RayError, ValueError, OSError) as error:
        raise ClusterError(f"Ray at {where} takes no connection: {first_line(error)}") from None
    silence()
    try:
        check_token(ray.nodes())
        yield
    finally:
        ray.shutdown()


def silence() -> None:
    """Have Ray print nothing of what happens on the cluster meanwhile: it would stand amid a command's output."""
    with suppress(ImportError):  # a detail of Ray's, without which there is only more to read
        from ray._private import worker

        worker._worker_logs_enabled = False  # noqa: SLF001 - `log_to_driver` leaves the ends of raylets to be printed


def check_token(nodes: Iterable[Mapping[str, Any]], environment: Mapping[str, str] = os.environ) -> None:
    """ClusterError for a Ray that anybody who reaches it may command, beyond this machine."""
    beyond = [one["NodeManagerAddress"] for one in nodes if one["Alive"] and not is_loopback(one["NodeManagerAddress"])]
    if beyond and environment.get("RAY_AUTH_MODE") != "token":
        raise ClusterError(
            f"Ray listens beyond this machine (at {beyond[0]}) and asks for no token, so whoever reaches it runs code "
            "as this user: set RAY_AUTH_MODE=token on every node and here, make a token with "
            "`ray get-auth-token --generate`, and start Ray anew"
        )


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def first_line(error: BaseException, lines: int = 1) -> str:
    """The beginning of what an error says, on one line."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(said[:lines])[:300] or type(error).__name__


# -- supervisors -------------------------------------------------------------------------------------------------------


def supervisors() -> dict[str, Any]:
    """The actors by the names of their nodes, in order. Empty if there is no cluster of that name."""
    names = sorted(ray.util.list_named_actors(), key=index_of)
    found = {}
    for name in names:
        try:
            found[name] = ray.get_actor(name)
        except ValueError:  # it has ended meanwhile
            continue
    return found


def running(namespace: str) -> dict[str, Any]:
    """The supervisors of a cluster that is up; ClusterError if there is none."""
    found = supervisors()
    if not found:
        raise ClusterError(f"no cluster {namespace!r} is up on this Ray cluster: tensord cluster up")
    return found


def chosen(namespace: str, nodes: Sequence[str]) -> dict[str, Any]:
    """Those of these nodes, or all of them; ClusterError for one that there is not."""
    found = running(namespace)
    for node in nodes:
        if node not in found:
            raise ClusterError(f"there is no node {node!r}; nodes: {', '.join(found)}")
    return {node: found[node] for node in nodes} if nodes else found


def answers(asked: Mapping[str, Any], seconds: float = ANSWER) -> dict[str, Any]:
    """What several supervisors answer, by node; in the place of an answer, the error that came instead."""
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds) if asked else None
    return {node: _answer(reference) for node, reference in asked.items()}


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference, timeout=0.001)
    except (RayError, TensordError, OSError, TimeoutError) as error:
        return error


def said(error: BaseException) -> str:
    """Why a supervisor has not answered, in a few words."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, TensordError):
        return cause.message
    if isinstance(error, GetTimeoutError):
        return "its supervisor does not answer"
    if isinstance(error, ActorUnavailableError):
        return "its supervisor is being started again, or waits for a node of Ray"
    if isinstance(error, ActorDiedError):
        return f"its supervisor could not be started: {explained(error)}"
    return first_line(cause if isinstance(cause, BaseException) else error)


def explained(error: BaseException) -> str:
    """The last line of a long report of Ray's, which names the exception, and a hint where the cause is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    if any("ModuleNotFoundError" in line and "tensord" in line for line in lines):
        return f"tensord is not installed there ({last})"
    return last[:300]


def ask(handle: Any, method: str, *arguments: Any, seconds: float = ANSWER) -> Any:
    """One supervisor's answer; ClusterError if there is none."""
    try:
        return ray.get(getattr(handle, method).remote(*arguments), timeout=seconds)
    except RayError as error:
        raise ClusterError(said(error)) from None
