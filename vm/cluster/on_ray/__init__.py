"""Supervisors as actors of Ray. Ray lists the nodes, and restarts supervisors. Imported on demand.

- `actor`: a supervisor as an actor; `metrics`: a daemon's figures as gauges of Ray
- `cluster`: finds and asks supervisors from an operator's process; `placing`: places supervisors on nodes
- `operations`: up, add, down, drain, restart, keys; `reading`: reads logs, figures, connections, clocks
- `simulated`: a Ray cluster of simulated nodes on this machine
"""
