"""Commands on several machines. `vm/cluster/` does their work; its part on Ray, an extra, is imported late.

- `cluster`: the group; `up`: starts a cluster, adds nodes; `operate`: removes nodes, restarts, rotates keys
- `status`: a table of the nodes; `logs`: the logs of their daemons; `doctor`: finds problems
- `reaching`: options of all of these, and the connection to Ray; `finding`: the Ray cluster that runs here
- `asking`: how supervisors ask their daemons
- `progress`: news of the nodes during a wait; `access`: a client's keys
"""
