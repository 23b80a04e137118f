"""Threads of streams, and how they meet.

- `worker`: an in-order queue with one thread behind it
- `helper_pool`: threads that help with large kernels
- `events`: a stream waits until a task of another stream was launched
"""
