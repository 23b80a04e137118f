"""The logical DAG of a trace, and its pictures.

- `graph`: instructions and their dependences; `fold`: chains, lines or spans as one node each; `layers`: where nodes go
- `pictures`: which picture for how large a graph, and the page of HTML with all of them (`page_template`)
- `graph_export`: Graphviz, Mermaid and JSON
"""
