"""`forks`: the effects of a fork, and of the end of the process, on sessions."""
