"""The page that shows a trace in a browser, and the document that it shows.

- `page_file`: builds the page as one file, from a document and `static/` (modules, style and frame)
- `view`: builds the document
- `tables`: the document's texts and streams, each once, and its records
- `sums`: the document's memory, tensors, sessions, advice and explanations
"""
