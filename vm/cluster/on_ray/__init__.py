"""Supervisors on Ray, which says which nodes there are, and starts supervisors again. Imported late.

- `actor`: a supervisor as an actor; `metrics`: a daemon's figures as gauges
- `cluster`: the supervisors as an operator's process finds them; `placing`: on which nodes they are
- `operations`: up, add, down, drain, restart, keys; `reading`: logs, figures, connections, clocks
- `simulated`: a Ray cluster of simulated nodes on this machine
"""
