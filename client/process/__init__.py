"""What happens to the process.

- `forks`: what a fork does to sessions
- `exits`: what the end of the interpreter does
"""
