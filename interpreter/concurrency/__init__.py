"""How threads wait, on both sides: threads of a session on a daemon, and threads that share a machine in this process.

- `leader_followers`: one waiting thread does the work, and wakes the others; `bell`: a semaphore to sleep on
- `background`: the thread for work that no other thread does in time
- `interrupts`: regions, which signals and thrown exceptions do not leave half-way; `signal_handlers`: covers signal
  handlers meanwhile; `thrown`: intercepts thrown exceptions; `blocks`: functions that end blocks
- `shielded_lock`: a lock with a region; `finalisers`: finalisers that no exception from outside stops
- `switch_interval`: the interpreter's switch interval, while there is a machine
- `process_end`: actions at the normal end of this process
"""
