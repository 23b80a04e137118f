"""The logical DAG of a trace, and its pictures.

- `graph`: instructions and their dependences; `fold`: chains, lines or spans as one node each
- `pictures`: which picture for how large a graph, where its nodes go, and the page of HTML (`page_template`)
- `graph_export`: Graphviz, Mermaid and JSON
"""
