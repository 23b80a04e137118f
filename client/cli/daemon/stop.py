"""`tensord stop`: sends the daemon SIGTERM, waits for its end, and lists the sessions that it serves.

A signal works even if the daemon does not answer, and the kernel checks the sender's permission. The daemon is the
process that holds the lock of the address. It is signalled through a pidfd, so that a reused process id does no harm.
"""

# ruff: noqa: T201
from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

import click

from ....interpreter.errors import ConnectionLost, MetadataError, NoDaemon, TensordError
from ...transport.seeking import running_daemon
from ..drawing.figures import duration, plural
from ..line import options
from ..line.options import in_json, print_json
from .ask import questions

PATIENCE: Final = 2.0  # seconds for the daemon to list its sessions: it is ended in any case
GRACE: Final = 5.0  # of a daemon that does not report its own
BEYOND: Final = 10.0  # seconds after the grace period, in which kernels that do not end are given up
SHOWN: Final = 5  # sessions


@click.command()
@options.address
@click.option("--now", is_flag=True, help="Cancel pending work at once: no grace period.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="How long to wait for the daemon's end. Default: its grace period and 10 s.",
)
@options.as_json
def stop(address: str | None, *, now: bool, wait: float | None) -> None:
    """End the daemon, and wait until it has ended.

    The daemon takes no more work, and pending work has the grace period of its configuration. Then all waiting and
    later calls of clients raise ConnectionLost. Exits with 1 if the daemon still runs after the wait.

    Example: tensord stop
    Example: tensord stop --now --json
    """
    where = address or running_daemon()
    with holder(where) as (pid, process):
        began = monotonic()
        sessions, grace, serves = told_by(where)
        grace = 0.0 if now else grace
        if not in_json():
            print(f"ending process {pid} at {where}: {described(sessions, grace, serves=serves)}")
        send(process, pid, now=now and serves)
        ended = has_ended(process, grace + BEYOND if wait is None else wait)
        seconds = monotonic() - began
    if in_json():
        answer = {
            "pid": pid,
            "address": where,
            "sessions": sessions,
            "grace": grace,
            "ended": ended,
            "seconds": seconds,
        }
        print_json(answer)
    elif ended:
        print(f"it has ended, after {duration(seconds)}")
    elif wait != 0:
        cancels = "" if now else "`tensord stop --now` cancels its work, and "
        raise ConnectionLost(
            f"process {pid} has not ended within {duration(seconds)}: {cancels}`kill -KILL {pid}` loses its work"
        )
    if not ended and wait != 0:
        raise click.exceptions.Exit(1)


@contextmanager
def holder(address: str) -> Iterator[tuple[int, int]]:
    """The process that holds the lock of an address: its id and a descriptor. NoDaemon if there is none here."""
    from ....interpreter.wire.addresses import for_client, is_local, lock_path, pid_of

    if is_local(address):
        raise MetadataError(f"{address} is a machine in the process of its session, and ends with it: name a daemon")
    pid = pid_of(for_client(address).text)
    if pid is None:
        raise NoDaemon(f"no daemon of this machine and user holds {address}: name the address that it was started with")
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid) if pid else None
        try:
            if process is not None and has_open(pid, lock_path(address)):
                yield pid, process
                return
        finally:
            if process is not None:
                os.close(process)
    raise NoDaemon(f"the daemon at {address} runs in another container: stop it there, as with `podman stop`")


def has_open(pid: int, file: Path) -> bool:
    with suppress(OSError):
        about = file.stat()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(entry.stat(), about):
                    return True
    return False


def told_by(address: str) -> tuple[list[dict[str, Any]] | None, float, bool]:
    """The sessions that the daemon will notify (None if it does not answer), its grace period, and whether it serves.

    A process that has its lock and does not listen yet has nothing to cancel: a single signal ends it properly.
    """
    try:
        with questions(address, PATIENCE) as asking:
            grace = asking.ask("status").get("grace", GRACE)  # an older daemon does not report it
            rows = asking.ask("sessions")
    except (TensordError, OSError) as error:
        return None, GRACE, not isinstance(error, NoDaemon)
    answer = [{name: row[name] for name in ("id", "name", "pid")} for row in rows if not row["asks"]]
    return answer, float(grace), True


def described(sessions: Sequence[dict[str, Any]] | None, grace: float, *, serves: bool = True) -> str:
    """The sessions that the daemon will notify, and the fate of pending work."""
    if not serves:
        return "it does not listen yet, and has no clients"
    if sessions is None:
        return "its sessions are not known"
    work = f"pending work has up to {duration(grace)}" if grace else "pending work is cancelled"
    if not sessions:
        return f"no client is connected, {work}"
    shown = ", ".join(f"{one['name']} ({one['pid']})" for one in sessions[:SHOWN])
    more = f" and {len(sessions) - SHOWN} more" if len(sessions) > SHOWN else ""
    return f"it notifies {plural(len(sessions), 'session')}: {shown}{more}; {work}"


def send(process: int, pid: int, *, now: bool) -> None:
    """Ask the process to end. Two different signals end its grace period, since the kernel does not count equal
    ones."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT) if now else (signal.SIGTERM,):
            signal.pidfd_send_signal(process, number)
    except ProcessLookupError:  # it has ended already
        return
    except PermissionError:
        raise ConnectionLost(f"process {pid} is another user's: let that user stop it") from None


def has_ended(process: int, seconds: float) -> bool:
    return bool(select.select([process], [], [], seconds)[0])
