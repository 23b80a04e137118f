"""A package from outside, with a kind of device and an op."""
