"""`forks`: what a fork, and the end of the process, do to sessions."""
