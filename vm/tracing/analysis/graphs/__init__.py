"""The graph of a trace's dependences, and pictures of it.

- `graph`: instructions and their dependences; `fold`: makes one node of a chain, a line, a span or a run
- `pictures`: the choice of nodes, and the HTML page (`page_template`); `layered_layout`: the positions of nodes
- `graph_export`: writes Graphviz, Mermaid and JSON
"""
