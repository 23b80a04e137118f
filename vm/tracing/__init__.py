"""The trace: the ring that the engine writes, the records it is read as, and the tools that work on them."""
