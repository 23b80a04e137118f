"""Plugins: external packages that define ops and kinds of devices (docs/plugins.md).

- `installed`: finds installed plugins by their entry points, without importing them
- `loading`: loads the named plugins, once in a process; a plugin that fails leaves nothing behind
- `plugin`: the description of a loaded plugin
"""
