"""The logical DAG of a trace, and its pictures.

- `graph`: instructions and their dependences; `fold`: chains, lines or spans as one node each
- `pictures`: the kind of picture for a size of graph, the layout of nodes, and the HTML page (`page_template`)
- `graph_export`: Graphviz, Mermaid and JSON
"""
