"""What runs when.

- `edges`: edges between accesses of copies
- `scheduler`: instructions from their admission to their end; `dispatch`: what is ready goes to streams
- `fair_queue`: how much of a stream one session may have
- `errors`: errors that follow RAW edges; `results`: results whose shape the data decide
- `pending_metas`: shapes that data decide
- `lost_devices`: what becomes of a device that is lost
"""
