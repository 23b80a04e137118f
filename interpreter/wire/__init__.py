"""What travels, and what of it is believed.

- `messages`: the messages of a session, declared; `fields`: what their fields may hold
- `forms`: arrays from outside to named messages; `roles`: the ids, request and location in any of them
- `call_arrays`: calls as arrays, where there is one per op
- `frames`: what travels around them; `codec`: bytes to headers and back; `limits`: how much
- `segments`: memory files that two processes share
- `addresses`, `keys`: where a daemon listens, and who may come in
"""
