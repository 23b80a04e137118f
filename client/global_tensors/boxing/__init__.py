"""Boxing: from one layout and placement to another.

- `route`: chooses the steps by their cost; `steps`: the kinds of steps, and how each is issued
- `links`: rates of transfers between devices
- `blocks`: the pieces of old parts that make up a new part; `pieces`: cuts and joins pieces
"""
