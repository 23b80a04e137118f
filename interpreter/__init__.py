"""The vocabulary that both sides speak: metas, op definitions, instruction messages, locations, errors.

Knows nothing of threads, devices or scheduling. Everything here is imported by the thin client and by the
virtual machine alike.
"""
