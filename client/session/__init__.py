"""A session: the facade of all rooms below.

- `session`: the facade; `waiting`: its awaitable forms, and the steps of what waits
- `connect`: from an address to a session; `connecting`: in an event loop
- `default_namespace`: `tensord.array_api`, on the default session
"""
