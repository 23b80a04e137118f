"""The daemon as a process.

- `instance`: the lock of each address; `logs`: the log file; `notify`: notifications to the service manager
- `signals`: the meanings of signals; `errors`: the error of a failed start
"""
