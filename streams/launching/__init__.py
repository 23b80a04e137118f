"""Streams of devices on which calling a kernel only launches it: `cuda`, and `sim` devices that launch.

- `launch_stream`: such a stream, and how its threads work together
- `launcher`: the thread that launches for all streams of one device
- `stream_fences`: positions in the order of a stream, behind bursts of tasks
"""
