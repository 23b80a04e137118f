"""Replays recordings: their messages go to other machines, and results are compared.

- `script`: a recording as steps: the messages, and what they define
- `ids`: the ids of a session in a replay; `signatures`: the ops that a session has sent
- `sides`: machines on which a recording runs; `translation`: a step as a message for one of them
- `unrolled`: a run of a routine as single ops
- `differences`: the difference between two results, and the tolerated one
- `missing`: substitutes for values that a recording lacks
- `player`: runs a recording on one side or on two, and compares
- `bisect`: finds the first op whose results differ
"""
