"""The daemon as a process.

- `instance`: the lock of each address; `logs`: the log file; `notify`: what the service manager hears
- `signals`: what each signal means; `errors`: why a daemon cannot start
"""
