"""Boxing: from one layout and placement to another.

- `route`: which steps lead there, and what they cost; `steps`: what the steps are, and how each is issued
- `links`: how fast bytes move between devices
- `blocks`: which pieces of the old parts a new part is made of; `pieces`: how they are cut out, and joined
"""
