"""`tensord metrics`: the figures of a daemon for Prometheus.

- `metrics`: the command
- `server`: HTTP; `pages`: what is served
- `scrapes`: answers that are kept for a moment; `looks`: what a daemon is asked
- `exposition`: figures as text
"""
