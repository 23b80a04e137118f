"""Commands on several machines. Their work is done in `vm/cluster/`, whose part on Ray, an extra, is imported late.

- `cluster`: the group; `up`: bring a cluster up, add nodes; `operate`: take nodes away, restart, rotate keys
- `status`: a table of the nodes; `logs`: what their daemons have logged; `doctor`: what is wrong
- `reaching`: options of all of them, and how Ray is reached; `finding`: the Ray cluster that runs here
- `asking`: how supervisors ask their daemons
- `progress`: news of the nodes during a wait; `access`: a client's keys
"""
