"""The virtual machine: tensors and mirrored objects, instructions and edges, the engine, residency, sessions, trace."""
