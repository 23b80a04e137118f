"""The daemon's configuration.

- `config`: all settings, read from a file and the command line, and as text; `checks`: checks of single values
"""
