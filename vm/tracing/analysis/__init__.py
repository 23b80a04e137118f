"""Tools that read a trace. They know records, and nothing of the engine.

- `trace`: what `Session.trace` returns: records, with methods that lead to the tools
- `nodes`: the traces of several nodes as one

The rooms, from the top to the bottom; each imports only those below it:

- `page/`: a trace as the document that the page shows
- `waits/`: why an instruction took as long as it did
- `advice/`: what costs time and need not, and what to do
- `graphs/`: the logical DAG and its pictures
- `sums/`: sums over a trace, and the course of time: memory, the timeline
- `checks/`: every edge, and every compiled segment, checked once more
- `inside/`: what is inside of the runs of routines
- `files/`: traces in files, and as machines send them
- `recorded/`: the records of a trace, and what each of them says
"""
