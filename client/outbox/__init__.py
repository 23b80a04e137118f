"""What is unsent.

- `outbox`: the messages of one session until they leave
"""
