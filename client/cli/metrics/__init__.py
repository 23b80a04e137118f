"""`tensord metrics`: the metrics of a daemon for Prometheus.

- `metrics`: the command
- `server`: HTTP; `pages`: the served pages
- `scrapes`: answers that are kept for a moment; `daemon_figures`: the questions to a daemon
- `exposition`: figures as text
"""
