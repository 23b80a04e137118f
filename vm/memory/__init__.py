"""What fits: memory is planned at admission, reserved at dispatch and given back at retirement.

- `ledger`: what is planned, who still needs memory, who waits for it
- `allocation`: getting memory; `release`: giving it back; `forwarding`: taking over that of an input
- `replicas`: copies that are valid elsewhere, too; `drop_after_transfer`: ... as soon as a transfer has arrived
- `reservation`: reserving at dispatch; `binding`: operands become arrays
- `mapped`: copies that clients have mapped
"""
