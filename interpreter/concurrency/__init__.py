"""How threads wait, on both sides: a session's threads for a daemon, and those that share a machine in this process.

- `leader_followers`: one waiting thread does the work, and wakes the others; `bell`: a semaphore to sleep on
- `background`: the thread for the work that no other thread does in time
- `interrupts`: regions, which signals and thrown exceptions do not leave half-way; `signal_handlers`: covers over what
  signals do; `thrown`: the door for thrown exceptions; `blocks`: functions that end blocks
- `shielded_lock`: a lock around a region; `finalisers`: finalisers that no exception from outside stops
- `switch_interval`: how often threads hand over the interpreter lock, while there is a machine
"""
