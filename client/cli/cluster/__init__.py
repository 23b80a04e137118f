"""Commands on several machines. What they do is done in the machine's `cluster` room, whose part on Ray is imported
late: it is an extra.

- `cluster`: the group; `up`: bring a cluster up, add nodes; `operate`: take nodes away, restart, rotate keys
- `status`: a table of the nodes; `logs`: what their daemons have logged; `doctor`: what is wrong
- `reaching`: options of all of them, and how Ray is reached; `asking`: how supervisors ask their daemons
- `progress`: what happens while one waits; `access`: a client's keys
"""
