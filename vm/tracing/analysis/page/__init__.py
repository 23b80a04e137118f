"""The document that the page shows: a trace.

- `whole`: the page as one file: `static/` (its modules, style and frame) with a document in it
- `view`: the document
- `tables`: its texts and streams, each once; its records
- `sums`: memory, tensors, sessions, advice and explanations in it
"""
