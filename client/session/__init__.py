"""A session: the public facade of all rooms below.

- `handlers`: the chain that every op passes
- `session`: the facade; `parts`: its complete core, and the base class of its methods
- `values`, `files`, `names`, `programs`, `order`, `reports`: its methods by subject, and the steps of those that wait
- `connect`: from an address to a session; `connecting`: in an event loop
- `default_namespace`: `tensord.array_api`, on the default session
"""
