"""Threads of streams, and how they wait for each other.

- `worker`: an in-order queue with one thread behind it
- `helper_pool`: threads that help with large kernels
- `events`: lets a stream wait until a task of another stream was launched
"""
