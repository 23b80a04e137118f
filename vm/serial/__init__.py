"""The serial engine: the same messages, executed one by one. Users choose it to rule the scheduler out; tests compare.

- `engine`: the engine; `values`: what it keeps
- `machine`: the engine for the sessions of a process; `questions`: what they may ask about it
- `oracle`: the engine that says what else timing may make of a program, to compare the virtual machine with
"""
