"""Tools that read a trace. They know records, and nothing of the engine.

- `trace`: the result of `Session.trace`: records, with methods that lead to the tools
- `nodes`: the traces of several nodes as one

The rooms, from the top to the bottom; each imports only those below it:

- `page/`: a trace as the document that the page shows
- `waits/`: the reasons for the duration of an instruction
- `advice/`: avoidable costs and their remedies
- `graphs/`: the logical DAG and its pictures
- `sums/`: sums over a trace, and its course in time: memory, the timeline
- `checks/`: independent checks of every edge and every compiled segment
- `inside/`: the insides of the runs of routines
- `files/`: traces in files, and in the form in which machines send them
- `recorded/`: the records of a trace, and facts that follow from each of them
"""
