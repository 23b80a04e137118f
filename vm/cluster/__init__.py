"""Daemons on several machines: a supervisor on each node keeps a daemon running and tells it about the other nodes.

What needs no Ray, from the bottom to the top:

- `errors`: of a cluster; `credentials`: its secrets; `home`: what a node keeps on its disk; `ports`: of a daemon
- `specification`: what is wanted of every node; `configuration`: of one daemon, as the text of a file
- `lifecycle`: the states of a daemon under supervision, as a table; `members`: what is known of all nodes
- `figures`: of a node, for monitoring; `gcs`: Ray's control service, asked without Ray; `tokens`: what it asks for
- `child`: the daemon's process, which is `bound` to the end of this one; `news`: waiting for changes
- `keeper`: keeps one daemon running; `supervisor`: that, and what the nodes tell each other

`on_ray/`: supervisors as actors of Ray, and what an operator does to them. It alone imports Ray.
"""
