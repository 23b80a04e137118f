"""Replaying recordings: their messages go to other machines, and results are compared.

- `script`: a recording as steps: what is sent, what that defines
- `ids`: the ids of a session, as a replay has them; `signatures`: what a session has told of its ops
- `sides`: machines on which a recording runs; `translation`: a step as a message for one of them
- `unrolled`: a run of a routine as its ops
- `differences`: how far two results are from each other, and how far they may be
- `missing`: what takes the place of values that a recording lacks
- `player`: runs a recording on one side or on two, and compares
- `bisect`: the first op whose results differ
"""
