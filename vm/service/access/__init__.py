"""Which peers may connect, and a bound on the memory that a connection costs.

- `listen_address`: an address to listen on, with its socket options
- `zap`: authentication, with the allow list; `refusals`: the log of refused peers
- `guard`: a bound on the memory of unfinished messages
"""
