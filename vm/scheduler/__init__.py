"""What runs when.

- `edges`: edges between accesses of copies, and the errors that follow them
- `stream_quota`: how much of a stream one session may have
- `pending_metas`: shapes that data decide
- `lost_devices`: what becomes of a device that is lost
"""
