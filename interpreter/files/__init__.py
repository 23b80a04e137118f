"""Files of tensors: what is in them, and their bytes. Knows nothing of threads, devices, sockets or sessions.

Both ends describe a file by themselves, from a descriptor: the client to know the metas, the machine since it trusts no
client. Every byte of a file is hostile until it is parsed, files change while they are read, and none is ever mapped:
a mapped file that is cut short kills its readers with SIGBUS.

- `describe`: what is in an open file, whatever its format
- `tensor_file`: an open file, its identity, and the one way in which bytes are read
- `open_file`: a file that is kept open, also one that another process has open
- `header`: entries of a file, and limits; `on_wire`: entries as they travel, checked anew
- `safetensors`, `npy`: the formats, `npy` with archives of such files; `zip_directory`: the members of an archive
- `pieces`: bytes in their order, inflated and checked; `values`: an entry's bytes, as a range, an array or a digest
- `safetensors_writer`: writes one; `durable_file`: a file that is on the disk whole or not at all
"""
