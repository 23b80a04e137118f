"""Devices, their memory and their streams: cpu, sim, cuda. One interface for all, in `device` and `stream`."""
