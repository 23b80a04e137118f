"""Metrics: the names of a daemon's figures, for exporters and for clusters.

- `family`: a metric and its samples; `bounds`: limits of the number of label values
- `table`: every metric
- `endpoint`: where metrics are served, and the token that other machines need
"""
