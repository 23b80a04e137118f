"""Supervisors as actors of Ray, which lists the nodes, and restarts supervisors. Imported on demand.

- `actor`: a supervisor as an actor; `metrics`: a daemon's figures as gauges
- `cluster`: the supervisors, for an operator's process; `placing`: the placement of supervisors on nodes
- `operations`: up, add, down, drain, restart, keys; `reading`: logs, figures, connections, clocks
- `simulated`: a Ray cluster of simulated nodes on this machine
"""
