"""The daemon's configuration.

- `config`: all settings, read from a file and the command line; `checks`: checks of single values
- `config_text`: the configuration as text
"""
