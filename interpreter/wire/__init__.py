"""What travels, and what of it is believed.

- `messages`: the messages of a session; `forms`: what a well-formed one is
- `frames`: what travels around them; `codec`: bytes to headers and back; `limits`: how much
- `segments`: memory files that two processes share
- `addresses`, `keys`: where a daemon listens, and who may come in
"""
