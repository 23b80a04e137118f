"""From a call to a message.

- `calls`: issues ops; `by_name`: what takes any op; `signatures`: calls that were seen before
- `handlers`: the chain that every op passes; `checks`: of arguments, for every part
- `host_calls`: functions of the program that the machine calls, for their results
- `contexts`: what was made together goes together; `scopes`: how
"""
