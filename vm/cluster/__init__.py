"""Daemons on several machines. A supervisor on each node keeps a daemon running, and tells it about the other nodes.

The files without Ray, from the bottom to the top:

- `errors`: the error of a cluster; `credentials`: the token and the clients' keys
- `home`: a node's files on disk; `ports`: chooses and locks ports
- `specification`: the operator's settings for all nodes; `configuration`: writes the configuration file of one daemon
- `lifecycle`: the states of a daemon's process, as a table; `members`: the known state of all nodes
- `figures`: a node's figures for monitoring
- `gcs`: a request to Ray's control service without Ray; `tokens`: checks Ray's token and version with it
- `child`: the daemon's process, which ends with this one (`bound`); `changes`: a signal on which coroutines wait
- `keeper`: keeps one daemon running; `supervisor`: a keeper, and the messages between nodes

`on_ray/`: supervisors as actors of Ray, and the operations on them. Only `on_ray` imports Ray.
"""
