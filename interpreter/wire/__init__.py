"""The wire protocol: messages, their encoding and their checks.

- `messages`: declarations of a session's messages, their union and their encoding; the declarations about programs,
  files and nodes: `program_messages`, `file_messages`, `node_messages`; `message_kinds`: the numbers of messages;
  `fields`: the types of fields; `metas`: metas as they travel
- `locations`: numbers of locations
- `forms`: untrusted arrays to named messages; `roles`: the ids, request and location in any message
- `frames`: the frames around messages; `arrays`: the arrays in them
- `host_calls`: results of the client's functions
- `codec`: bytes to headers and back; `limits`: limits of sessions and frames
- `segments`: memory files that two processes share; `descriptors`: the limit of open descriptors of a process;
  `host_memory`: memory that a client fills and its machine reads, in either process; `gpu_payload`: an array on a GPU
- `addresses`, `keys`: addresses of daemons, and key files of peers; `names`: of sessions and tensors
- `members`: the members of a cluster, one entry for each node
- `monitor`: events of a socket's connections
"""
