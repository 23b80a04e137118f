"""Daemons on several machines: a supervisor on each node keeps a daemon running and tells it about the other nodes.

The files without Ray, from the bottom to the top:

- `errors`: of a cluster; `credentials`: its secrets; `home`: the files of a node on disk; `ports`: of a daemon
- `specification`: the operator's settings for every node; `configuration`: of one daemon, as the text of a file
- `lifecycle`: the states of a daemon under supervision, as a table; `members`: the known state of all nodes
- `figures`: of a node, for monitoring; `gcs`: a request to Ray's control service without Ray; `tokens`: its tokens
- `child`: the daemon's process, which is `bound` to the end of this one; `news`: waiting for changes
- `keeper`: keeps one daemon running; `supervisor`: a keeper, and the messages between nodes

`on_ray/`: supervisors as actors of Ray, and the operations on them. Only `on_ray` imports Ray.
"""
