"""Unsent messages.

- `outbox`: the messages of one session until they leave; `batches`: those of a closed session, and of an atomic block;
  `atomic`: such a block
- `current`: which capture a thread is in, and what is refused there
- `cancellation`: cancelling and restarting
- `callbacks`: keeps side effects' callbacks from issuing
- `releases`: where in a batch dropped handles are released; `host_results`: which results are brought near the host
"""
