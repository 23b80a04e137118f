"""`tensord cluster`: daemons on several machines, on a Ray cluster."""

from __future__ import annotations

from typing import Final

from ..line.commands import Commands, Listed

COMMANDS: Final = {
    "up": Listed("cluster.up", "Start a daemon on each node of a Ray cluster, supervised from then on."),
    "status": Listed("cluster.status", "Show the nodes, their daemons, and what is wrong with them."),
    "add": Listed("cluster.up", "Add nodes to a cluster that is up."),
    "drain": Listed("cluster.operate", "Remove nodes once their sessions have ended."),
    "down": Listed("cluster.operate", "Stop the daemons of all nodes, or of these nodes."),
    "restart": Listed("cluster.operate", "Restart the daemons one by one."),
    "rotate": Listed("cluster.operate", "Give the cluster new keys, and restart the daemons one by one."),
    "keys": Listed("cluster.operate", "Admit a client, and write its keys."),
    "logs": Listed("cluster.logs", "Print the daemons' logs."),
    "doctor": Listed("cluster.doctor", "Find problems of a cluster, and say what to do."),
}

cluster: Final = Commands(
    COMMANDS, name="cluster", help="Daemons on several machines, which Ray starts, watches and restarts."
)
