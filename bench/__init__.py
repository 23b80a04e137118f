"""Benchmarks of the virtual machine, each against NumPy in the same run. `python -m bench --help`."""
