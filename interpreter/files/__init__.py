"""Files of tensors: their contents, and their bytes. Knows nothing of threads, devices, sockets or sessions.

Both ends describe a file by themselves, from a descriptor: the client to learn the metas, the machine because it trusts
no client. Every byte of a file is untrusted until it is parsed, files may change while they are read, and none is ever
mapped: a mapped file that is cut short kills its readers with SIGBUS.

- `describe`: the contents of an open file, in any format
- `tensor_file`: an open file, its identity, and the only way to read its bytes
- `open_file`: a file that is kept open, also one that another process has open
- `header`: entries of a file, and limits; `on_wire`: entries in messages, checked again
- `safetensors`, `npy`: the formats, `npy` with archives of such files; `zip_directory`: the members of an archive
- `pieces`: bytes in order, inflated and checked; `values`: an entry's bytes, as a range, an array or a digest
- `safetensors_writer`: writes a safetensors file; `durable_file`: a file that is complete on the disk or absent
"""
