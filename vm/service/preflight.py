"""The conditions of a start, which `serve` and `serve --check-config` check by the same functions.

The check disturbs no running daemon and leaves nothing behind: it takes no lock, listens on no socket, and removes a
log file that it has made.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
from collections.abc import Callable
from pathlib import Path

from ...interpreter.errors import TensordError
from ...interpreter.schema.sample_calls import wish_of
from ...interpreter.types.sizes import size
from ...interpreter.wire.addresses import pid_of
from ...streams.catalogue import check_devices
from ...streams.cuda import kernel_cache
from ...streams.kinds import KINDS
from ...streams.links.link import Links
from ...streams.stream import Sink
from ..engine import INLINE_WORK
from ..runtime import Runtime
from .access.listen_address import ListenAddress, listen_guards
from .descriptors import require_least
from .exporter import check_exporter
from .peers import check_peers, peer_warnings
from .process.errors import StartError
from .process.instance import check_directories
from .process.logs import logging_to
from .restored import generation_to_restore
from .settings.checks import available_memory
from .settings.config import Config, LogConfig
from .warming import DaemonWarming

CLOSE_TIMEOUT = 2.0  # seconds for the streams of devices that were opened for the check to end


def check(config: Config) -> None:
    """StartError or OSError, with the reason, if a daemon could not start."""
    require_least()
    check_log(config.log)
    for address in listen_guards(config.listen, config.security.server_secret, config.security.allow).addresses:
        check_directories(address.address)
        check_port(address)
    check_peers(config)
    check_exporter(config)
    prepare_kernel_cache(config, kernel_cache.check)
    generation_to_restore(config)
    runtime = open_runtime(config, lambda _tasks: None)
    try:
        warming_of(config, runtime)
    finally:
        runtime.close(CLOSE_TIMEOUT)


def start_warnings(config: Config) -> list[str]:
    """Warnings about questionable settings, with which a daemon still starts, such as more memory than there is."""
    most = available_memory()
    limits = {"the daemon (memory)": config.memory}
    for name, (kind, options) in check_devices(config.opened).items():
        if KINDS[kind].main_memory and config.memory <= most:  # otherwise cpu devices have a share of it
            limits[f"{name} (its option memory)"] = getattr(options, "memory", 0)
    warnings = [
        f"{name} may take {size(nbytes)}, and this machine or its control group has {size(most)}: set it lower"
        for name, nbytes in limits.items()
        if nbytes > most
    ]
    if config.warm and config.kernels is None and not any(table.get("launches") for table in config.opened):
        warnings.append("warm is for devices that compile kernels, but none of the devices does")
    if not any(address.startswith("tcp://") for address in config.listen):
        unused = {"files": config.files, "checkpoints": config.checkpoints, "[security]": config.security.server_secret}
        warnings += [
            f"{name} is for clients over tcp, but no address is tcp" for name, given in unused.items() if given
        ]
    return warnings + peer_warnings(config)


def check_log(log: LogConfig) -> None:
    """OSError unless the log can be written."""
    is_new = log.file is not None and not log.file.exists()
    with logging_to(log.file, level=log.level, form=log.format):
        pass
    if is_new and log.file is not None:
        log.file.unlink()


def check_port(address: ListenAddress) -> None:
    """StartError if a tcp address cannot be bound, since it is not this machine's, or another program has it."""
    if address.local:
        return
    host, _, port = address.endpoint.removeprefix("tcp://").rpartition(":")
    try:
        bind_once(host.strip("[]"), int(port))
    except OSError as error:
        is_ours = error.errno == errno.EADDRINUSE and pid_of(address.address) is not None
        if not is_ours:
            raise cannot_listen(address.address, error.errno) from None


def bind_once(host: str, port: int) -> None:
    """Bind a socket and close it; OSError if that fails. "*" is any address; without IPv6, any IPv4 address."""
    if host == "*":
        try:
            bind_once("::", port)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:
                raise
            bind_once("0.0.0.0", port)  # noqa: S104 - the configured address
        return
    with sockets.socket(sockets.AF_INET6 if ":" in host else sockets.AF_INET) as probe:
        probe.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        probe.bind((host, port))


def cannot_listen(address: str, number: int | None) -> StartError:
    """The error for an address that cannot be bound."""
    return StartError(f"cannot listen on {address}: {os.strerror(number or errno.EIO)}")


def prepare_kernel_cache(config: Config, act: Callable[[Path], None]) -> str:
    """Check or make the directory of compiled kernels before CuPy is imported; return its path, or "" if not needed.

    StartError if the directory cannot be used. `act`: the function that checks or makes it.
    """
    try:
        directory = config.kernels
        if directory is not None:
            act(directory)
    except TensordError as error:
        raise StartError(error.message) from None
    return "" if directory is None else str(directory)


def open_runtime(config: Config, sink: Sink, links: Links | None = None) -> Runtime:
    """Open the devices and make the engine; StartError if a device cannot be opened."""
    try:
        trace = config.trace
        return Runtime(
            config.opened,
            sink,
            tracing=trace.on,
            trace_capacity=trace.capacity,
            hang_after=config.hang_after,
            run_work=INLINE_WORK,
            node=config.node,
            incarnation=config.cluster.incarnation,
            links=links,
        )
    except TensordError as error:
        raise StartError(error.message) from None


def warming_of(config: Config, runtime: Runtime) -> DaemonWarming:
    """The kernels to compile at the start; StartError if an entry names an unknown device."""
    return DaemonWarming(runtime, [wish_of(entry) for entry in config.warm])
