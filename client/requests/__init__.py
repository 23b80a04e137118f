"""Questions to the machine, and side effects in program order.

- `answers`: asks for values and reports, and waits for them; `held`: the answer about the holders of memory
- `effects`: user code in program order; `printing`: prints in program order
"""
