"""Tools that read a trace. They know records, and do not know the engine.

- `trace`: the result of `Session.trace`, whose methods call the tools
- `nodes`: joins the traces of several nodes to one

The folders, from the top to the bottom; each imports only those below it:

- `page/`: the page that shows a trace in a browser
- `waits/`: why an instruction took as long as it did
- `advice/`: avoidable costs and their remedies
- `graphs/`: the graph of dependences, and pictures of it
- `sums/`: statistics of a trace, memory over time, the timeline
- `checks/`: independent checks of every edge and every compiled segment
- `inside/`: the steps and calls inside the runs of routines
- `files/`: traces in files, and in the form in which machines send them
- `recorded/`: the records of a trace, and facts that follow from single records
"""
