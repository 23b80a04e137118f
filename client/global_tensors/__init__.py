"""Global tensors: one value in parts on several devices.

- `tensor`: the handle; `operators`: its operators; `form`: its meta, placement and layout; `values`: waiting for it,
  and reading; `replicas`: without those that have failed
- `making`: from values and tensors to global ones; `checks`: of arguments; `published`: of parts from elsewhere
- `plan`: which layouts a call takes and gives; `calls`: issues calls, in one group each; `known`: those made before
- `boxing`: from one layout and placement to another; `narrowing`: before a split axis is indexed;
  `writing`: to a region along one; `reducing`: part by part; `explaining`: what moves, and why
"""
