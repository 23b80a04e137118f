"""The client. A thin client imports everything here but `cli` and `embedded`, which reach into the machine.

- `session`: a connection to a machine, the facade of its parts; `connect`: from an address to a session; `seeking`:
  how a daemon is looked for
- `tensor`: a handle; `operators`, `methods`: its ops, `indices`; `display`: what people see of it; `reading`: piece by
  piece
- `calls`: from a call to a message; `handlers`: the chain that every op passes; `signatures`, `locations`, `spans`:
  sent once, then named by number; `frames`: whose code a frame runs, `cells`: what notebooks call theirs;
  `tracebacks`: that end at the user's line; `checks`: what every part checks
- `uploads`: from values to a tensor; `padding`: to a larger one; `host_arrays`: arrays that are uploaded as they lie;
  `loading`, `saving`: from a file to tensors and back
- `answers`: from a tensor to its value; `host_results`: values that come before they are asked for; `names`: tensors
  that sessions share
- `effects`: user code in program order, `printing` in it; `cancellation`: cancelling and restarting
- `waiting/`: what waits, for threads and for event loops
- `contexts`: what was made together goes together; `held`: who holds the machine's memory
- `outbox/`: unsent messages; `transport/`: how they get to a daemon; `embedded/`: a machine in this process
- `routines/`: functions that are captured once and run as one message; `periods/`: what repeats, found by the client
- `array_api/`: the namespace of the standard; `nn`, `random`: functions beyond the standard
- `forks`: what a fork does to sessions; `exits`: what the end of the interpreter does; `keys`: the client's keys
- `cli/`: the command line
"""
