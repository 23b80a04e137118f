"""What an op is, and what it may be given.

- `opdef`: an op's definition, and the registry of them
- `infer`: the metas of results from those of operands; `targets`: what an op may write into
- `attributes`, `indexing`: what attributes and indices may be, and their normal forms
- `promotion`: which dtype results, and what a Python scalar must satisfy
- `opdoc`: an op described for people
"""
