"""Advice on a trace: avoidable costs, their lines, and their remedies.

- `advise`: applies all rules, and sorts the findings by cost; `advice_text`: a finding in words
- `finding`: the result of a rule, and the records that rules examine
- `moves`: values that move back, or move repeatedly; `uploads`: a line that uploads repeatedly
- `small_ops`: short ops that repeat; `reads`: waits of the program that leave a device idle
- `compiling`: kernels that are compiled in the middle of work; `evictions`: values that are evicted and come back
- `sharing`: a session that delays another
"""
