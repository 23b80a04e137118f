"""Scheduling: when each instruction runs.

- `edges`: edges between accesses of copies
- `scheduler`: instructions are admitted, and the steps of a pass; `dispatch`: ready instructions go to streams;
  `completion`: executed instructions retire; `overdue`: instructions that have waited or run too long
- `fences`: how instructions wait for launches that were made at admission
- `fair_queue`: how many instructions one session may queue on a stream
- `errors`: how errors spread along RAW edges; `error_reports`: which session is told of an error
- `results`: results whose shape depends on data
- `pending_metas`: metas that depend on data
- `wanted`: the needs of instructions, for the driver of a step
- `lost_devices`: the handling of a lost device
"""
