"""What the page shows: a trace as one document.

- `view`: the document
- `tables`: its texts and streams, each once; its records
- `sums`: memory, tensors, sessions, advice and explanations in it
"""
