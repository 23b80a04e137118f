"""What fits: memory is planned at admission, reserved at dispatch and given back at retirement.

- `reservation`: reserving at dispatch, and who waits for memory
- `binding`: operands become arrays; results of data-decided size get their memory
- `mapped`: copies that clients have mapped
- `drop_after_transfer`: copies that go as soon as a transfer has brought another
"""
