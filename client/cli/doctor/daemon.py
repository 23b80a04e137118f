"""The checks of `tensord doctor` on a daemon: its directory and socket, whether it answers, and its status."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from .... import __version__
from ....interpreter.errors import ConnectionLost, TensordError
from ....interpreter.types.device_names import kind_of
from ...requests.held import as_object
from ..daemon.ask import ask
from ..daemon.health import PATIENCE, reasons
from ..drawing.figures import count, duration, plural, size
from .findings import CheckResult, Level, fail, guarded, note, ok, warn
from .gpu import check_kernels

_ROUNDS = 5  # tensors that repeatedly leave and return: the most that are named
_RECOUNT = 600.0  # seconds for a daemon to recount its invariants, during which it answers nothing


def check_daemon(address: str | None) -> Iterator[CheckResult]:
    """The runtime directory, the socket, the daemon that listens on it, and its version."""
    from ....interpreter.wire.addresses import default_address, for_client

    chosen = address or default_address()
    if not address:
        yield from check_environment(chosen)
    try:
        parsed = for_client(chosen)
    except TensordError as error:
        what, _, advice = str(error).partition(": ")
        yield fail("address", what, advice or "tensord serve --help shows the form of addresses")
        return
    if parsed.kind == "ipc":
        results = [*check_directory(Path(parsed.path).parent, default=not address), *check_socket(Path(parsed.path))]
        yield from results
        if any(one.level is Level.FAIL for one in results):
            return
    yield from check_listener(chosen, socket=Path(parsed.path) if parsed.path else None)


def check_environment(address: str) -> Iterator[CheckResult]:
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    if directory and Path(directory).is_absolute():
        yield ok("XDG_RUNTIME_DIR", directory)
    else:
        is_what = "is a relative path" if directory else "is unset"
        advice = "log in through systemd, or set it for clients and daemon alike, so that they look in one place"
        yield note("XDG_RUNTIME_DIR", f"{is_what}, so the default address is {address}", advice)


def check_directory(directory: Path, *, default: bool) -> Iterator[CheckResult]:
    """The socket's directory, which must be ours and closed to others; a warning if it is not the default one."""
    if not directory.exists():
        yield ok("directory", f"{directory} does not exist yet; `tensord serve` makes it")
        return
    about = directory.stat()
    mode = stat.S_IMODE(about.st_mode)
    bad = fail if default else warn
    if not stat.S_ISDIR(about.st_mode):
        yield fail("directory", f"{directory} is not a directory", f"rm {directory}")
    elif about.st_uid != os.getuid():
        advice = "rename it and start again, or choose another --address"
        yield bad("directory", f"{directory} belongs to user {about.st_uid}, not to this user ({os.getuid()})", advice)
    elif mode & 0o077:
        yield bad("directory", f"{directory} has mode {mode:04o}: other users may enter", f"chmod 700 {directory}")
    elif mode & 0o700 != 0o700:
        yield fail("directory", f"{directory} has mode {mode:04o}: this user may not use it", f"chmod 700 {directory}")
    else:
        yield ok("directory", f"{directory}, mode {mode:04o}")


def check_socket(socket: Path) -> Iterator[CheckResult]:
    """The socket's path: a socket of ours, or nothing."""
    try:
        about = socket.lstat()
    except OSError:
        return
    if not stat.S_ISSOCK(about.st_mode):
        yield fail("socket", f"{socket} is not a socket", f"rm {socket}")
    elif about.st_uid != os.getuid():
        yield fail("socket", f"{socket} belongs to user {about.st_uid}, not to this user", "choose another --address")


def check_listener(address: str, socket: Path | None) -> Iterator[CheckResult]:
    from ....interpreter.wire.addresses import pid_of

    try:
        pid = pid_of(address)
    except TensordError as error:  # its host is not known
        yield fail("address", f"{address}: {error}", "check the host's name, or write its IP")
        return
    if pid is None and socket is not None:
        if socket.exists():
            advice = f"nothing: `tensord serve` replaces it; or rm {socket}"
            yield warn("daemon", f"{socket} is stale: no daemon holds it", advice)
        else:
            yield note("daemon", f"none at {address}", "tensord serve")
        return
    who = f"process {pid}" if pid else "the process that listens"
    try:
        status = _status(address)
    except (TensordError, OSError) as error:
        advice = (
            f"see its log; if it hangs: kill {pid}"
            if pid
            else "start it there with tensord serve, or check the address"
        )
        yield fail("daemon", f"{who} at {address} does not answer: {error}", advice)
        return
    answers = f"process {status['pid']} at {address}, up {duration(status['uptime'])}"
    yield ok("daemon", f"{answers}, {plural(status['sessions'], 'session')}")
    yield from check_status(status)
    yield from guarded("plugins", lambda: check_plugins(address))
    yield from guarded("device memory", lambda: check_memory(address))
    if any(device["eviction"]["returned"]["count"] for device in status["devices"].values()):
        yield from guarded("eviction", lambda: check_eviction(ask(address, "returns", _ROUNDS)))


def check_plugins(address: str) -> Iterator[CheckResult]:
    """The daemon's plugins, of which this Python should have the same versions, or none."""
    for one in ask(address, "plugins", patience=PATIENCE):
        name, there = one["name"], one["version"]
        here = next((found.version for found in distributions(name=name)), None)
        if here in {None, there}:
            yield ok("plugins", f"{name} {there}, {'as here' if here else 'which is not installed here'}")
        else:
            advice = "install the same version on both sides, and restart the daemon: its ops differ here"
            yield warn("plugins", f"the daemon has {name} {there}, this Python {here}", advice)


def check_eviction(returns: Iterable[dict[str, Any]]) -> Iterator[CheckResult]:
    """Tensors that repeatedly leave a device for lack of memory and come back."""
    for row in returns:
        names = ", ".join(map(repr, row["names"]))
        made = f"{row['op'] or 'an unknown op'}{' at ' + row['location'] if row['location'] else ''}"
        message = (
            f"{size(row['bytes'])} by {made} (session {row['session']}{', named ' + names if names else ''}) left "
            f"{row['device']} for lack of memory and came back {count(row['returns'])} times"
        )
        advice = f"give {row['device']} more memory, keep fewer tensors alive, or pin this one (tensor.pin())"
        yield warn("going round", message, advice)


def _status(address: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(address, "status", patience=PATIENCE)
    return found


def check_status(status: dict[str, Any]) -> Iterator[CheckResult]:
    ours = __version__
    if status["version"] != ours:
        message = f"the daemon is {status['version']}, this client {ours}"
        yield warn("versions", message, "restart the daemon, or install the same version on both sides")
    else:
        yield ok("versions", f"daemon and client are both {ours}")
    files = status["descriptors"]
    if files["open"] > files["limit"] * 0.75:
        advice = "close sessions, or raise its limit: LimitNOFILE= in its unit, or ulimit -n"
        yield warn("open files", f"the daemon has {count(files['open'])} of {count(files['limit'])} open", advice)
    for reason in reasons(status):
        yield fail(*reason)
    for name, device in status["devices"].items():
        if device["lost"]:
            continue
        if device["used"] > device["limit"] * 0.95 and kind_of(name) == "store":
            advice = "raise its quota, or keep fewer tensors alive: beyond it nothing leaves the host, and ops fail"
            held = f"{size(device['used'])} of {size(device['limit'])}"
            yield warn(name, f"its quota is nearly used up by what left the host: {held}", advice)
        elif device["used"] > device["limit"] * 0.95:
            advice = "tensord tensors --device {name} lists its tensors"
            yield warn(name, "more than 95 % of its memory is in use", advice.format(name=name))
    for name in status["files"]["changed"]:
        advice = "load it again; --own, or load(own=True), keeps values that were read whatever happens to the file"
        yield warn("files", f"{name} has changed since tensors were loaded from it, so they have errors now", advice)
    if (kernels := status.get("kernels")) and Path(kernels).is_dir():  # otherwise it lies on another machine
        yield from check_kernels(Path(kernels))
    if not status["trace"]["enabled"]:
        yield note("trace", "off", "start the daemon with tracing on")


def check_invariants(address: str | None) -> Iterator[CheckResult]:
    """The invariants of a daemon's tensors, memory and instructions, recounted."""
    try:
        answer = ask(address, "invariants", patience=_RECOUNT)
    except ConnectionLost:
        yield note("invariants", "no daemon answers, so there is nothing to check")
        return
    over = f"{plural(answer['tensors'], 'tensor')} and {plural(answer['instructions'], 'live instruction')}"
    for text in answer["violations"]:
        yield fail("invariants", text, "please report this, with `tensord trace dump -o FILE`")
    if not answer["violations"]:
        yield ok("invariants", f"{answer['rules']} rules hold, checked over {over}")


# -- holders of memory -------------------------------------------------------------------------------------------------

ATTEMPTS: Final = 5  # attempts to get an answer during which nothing happens
ALL: Final = 10_000  # rows
UNREAD_SECONDS: Final = 600.0  # seconds in which a value with an error should have been read


def check_memory(address: str) -> Iterator[CheckResult]:
    """Bytes without a holder, which would be a bug of tensord, and memory that is held for no open session.

    A busy daemon allocates and frees memory while it counts. It is asked a few times, until nothing has happened
    meanwhile.
    """
    for _ in range(ATTEMPTS):
        memory = as_object(ask(address, "memory", "session", ALL))
        if memory["still"]:
            break
    yield from check_pools(memory)
    yield from check_ended([row for row in memory["rows"] if row["ended"] and row["bytes"]])
    yield from check_poisoned(
        [row for row in memory["rows"] if row["poisoned"] and (row["poisoned_age"] or 0) >= UNREAD_SECONDS]
    )


def check_pools(memory: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Check that every byte that a pool has allocated has a holder."""
    apart = [pool for pool in memory["pools"] if pool["unaccounted"]]
    if memory["still"]:
        for pool in apart:
            held = f"{pool['unaccounted']:,} of {pool['allocated']:,} bytes in use of {pool['device']}"
            advice = "please report this, with `tensord doctor --deep --json`"
            yield fail("device memory", f"{held} have no holder", advice)
    if not apart:
        devices = plural(len(memory["pools"]), "device")
        yield ok("device memory", f"every byte in use has a holder: {size(memory['total'])} on {devices}")
    elif not memory["still"]:
        message = "memory was taken or freed whenever it was counted, so the holders do not add up"
        yield note("device memory", message, "run the command again when the daemon is less busy")


def check_ended(rows: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Memory that ended sessions have left behind, held by names or other sessions."""
    if rows:
        nbytes = sum(row["bytes"] for row in rows)
        message = f"{size(nbytes)} were made by {plural(len(rows), 'session')} that ended, and are still held"
        names = [name for row in rows for name in row["names"]]
        sessions = sorted({id_ for row in rows for id_ in row["sessions"]})
        holders = [f"name {name!r}" for name in names[:3]] + [f"session {id_}" for id_ in sessions[:3]]
        more = sum(row["names_in_all"] for row in rows) - len(names[:3]) + len(sessions) - len(sessions[:3])
        by = ", ".join(holders) + (f" and {more} more" if more else "")
        yield note(
            "ended sessions",
            f"{message} by {by}",
            "unpublish names that are no longer needed: tensord tensors --by name",
        )


def check_poisoned(rows: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Values that have held an error for a long time."""
    if rows:
        count, oldest = sum(row["poisoned"] for row in rows), max(row["poisoned_age"] for row in rows)
        message = f"{plural(count, 'value')} with an error are held, the oldest for {duration(oldest)}"
        advice = "tensord tensors shows them, with their errors; release them, or write them again"
        yield note("values with errors", message, advice)
