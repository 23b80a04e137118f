"""Global tensors: one value in parts on several devices.

- `tensor`: the handle; `operators`: its operators; `form`: its meta, placement and layout; `values`: waits for its
  value, and reads it; `replicas`: omits replicas that have failed
- `making`: from values and tensors to global ones; `checks`: checks of arguments; `published`: global tensors from
  parts of a routine or of a name
- `plan`: the layouts of a call's operands and results; `calls`: issues calls, each in one group; `known`: calls that
  were made before
- `boxing/`: from one layout and placement to another; `narrowing`: before an index along a split axis; `writing`: to a
  region along a split axis; `reducing`: reductions part by part; `explaining`: which bytes move, and why
"""
