"""Unsent messages.

- `outbox`: the messages of one session until they are sent; `atomic`: a block that is sent as one message
- `batches`: the limited lists of messages of such a block, and of a closed session
- `current`: the capture of each thread, and refusals during a capture
- `cancellation`: cancelling and restarting
- `callbacks`: keeps callbacks of side effects from issuing ops
- `releases`: adds the releases of dropped handles to a batch; `host_results`: results that are copied to the host
"""
