"""A session: the facade of all rooms below.

- `session`: the facade; `parts`: its core, whole, and what the classes of its methods share
- `values`, `files`, `names`, `programs`, `order`, `reports`: its methods by what they are about, and the steps of those
  that wait
- `connect`: from an address to a session; `connecting`: in an event loop
- `default_namespace`: `tensord.array_api`, on the default session
"""
