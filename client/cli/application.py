"""`tensord` and its commands."""

from __future__ import annotations

from typing import Final

import click

from ... import __version__
from .line.commands import Commands, Listed

COMMANDS: Final = {
    "serve": Listed("serve", "Run the daemon, until SIGTERM or Ctrl-C."),
    "status": Listed("daemon.admin", "Show the daemon's health: memory, instructions, hanging kernels."),
    "stop": Listed("daemon.stop", "End the daemon, and wait until it has ended."),
    "sessions": Listed("daemon.admin", "List the connected sessions and what they hold."),
    "tensors": Listed("daemon.admin", "List the largest tensors and where their copies are."),
    "names": Listed("daemon.admin", "List the published tensors and routines."),
    "devices": Listed("daemon.admin", "Show each device and the state of its streams."),
    "plugins": Listed("daemon.plugins", "List the plugins that the daemon has loaded, or those installed here."),
    "evict": Listed("daemon.evict", "Move tensors from their devices to the host, now."),
    "checkpoint": Listed(
        "files.checkpoint", "Write all published values, or these names, to a directory of checkpoints."
    ),
    "restore": Listed("files.checkpoint", "Publish the values of a checkpoint, or these names of it."),
    "load": Listed("files.load", "Publish the tensors of a safetensors, .npz or .npy file, or these names of it."),
    "top": Listed("daemon.top", "Watch the daemon work; q or Ctrl-C ends it."),
    "metrics": Listed("metrics.metrics", "Serve the daemon's metrics to Prometheus, until SIGTERM or Ctrl-C."),
    "web": Listed("web.web", "Show the work of the daemon, or a trace, on a web page, until SIGTERM or Ctrl-C."),
    "trace": Listed("traces.trace", "Record, verify, draw and explain what a daemon did."),
    "run": Listed(
        "programs.run",
        "Run a program from its text: str(routine.program(...)), or written by hand (docs/programs.md).",
    ),
    "ops": Listed("programs.ops", "List all ops, or describe one in detail."),
    "warm": Listed("programs.warm", "Compile the kernels of these ops ahead of their first use."),
    "doctor": Listed("doctor.doctor", "Find common problems, and say what to do."),
    "keygen": Listed("keygen", "Make a key pair for encrypted tcp: NAME.key (public) and NAME.key_secret."),
    "cluster": Listed("cluster.cluster", "Daemons on several machines, which Ray starts, watches and restarts."),
    "completion": Listed("completion", "Print the script that completes commands and options in a shell."),
}

application: Final = click.version_option(
    __version__, message="tensord %(version)s", help="Print the version and exit."
)(
    Commands(
        COMMANDS,
        name="tensord",
        help="One owner for the tensors and devices of a machine.",
        context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
    )
)
