"""Advice on a trace: what costs time and need not, at which lines, and what to do about it.

- `advise`: all rules, and the findings by cost; `advice_text`: a finding in words
- `finding`: what a rule finds, and the records that it looks at
- `moves`: values that go there and back, and that move again; `uploads`: one line that uploads again and again
- `small_ops`: short ops that repeat; `reads`: waits of the host in the middle; `compiling`: kernels compiled meanwhile
- `evictions`: values that leave and come back; `sharing`: a session that holds up another
"""
