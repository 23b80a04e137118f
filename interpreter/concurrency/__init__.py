"""How threads wait, on both sides: a session's threads for a daemon, and those that share a machine in this process.

- `leader_followers`: one waiting thread does the work, and wakes the others; `bell`: a semaphore to sleep on
- `background`: the thread for the work that no other thread does in time
- `interrupts`: Ctrl-C while the main thread drives or waits
- `switch_interval`: how often threads hand over the interpreter lock, while there is a machine
"""
