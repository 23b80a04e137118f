"""Metrics: what a daemon's figures are called, for exporters and for clusters.

- `family`: a metric and its samples; `bounds`: how many label values there may be
- `table`: every metric
- `endpoint`: where metrics are offered, and the token without which nobody else gets them
"""
