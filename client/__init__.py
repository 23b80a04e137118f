"""The client: Session, Tensor, transports, the command line. Imports only `interpreter`, but for the embedded transport."""
