"""Packages from outside that define ops and kinds of devices (docs/plugins.md).

- `installed`: those that could be loaded, by their entry points; imports none of them
- `loading`: loads those that somebody names, once in a process, or none of one that fails
- `plugin`: what is known of one that is loaded
"""
