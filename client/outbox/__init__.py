"""Unsent messages.

- `outbox`: the messages of one session until they leave; `atomic`: a block that leaves as one message
- `batches`: the lists of messages of such a block, and of a closed session, whose length is limited
- `current`: which capture a thread is in, and what is refused there
- `cancellation`: cancelling and restarting
- `callbacks`: keeps side effects' callbacks from issuing
- `releases`: where in a batch dropped handles are released; `host_results`: which results are brought near the host
"""
