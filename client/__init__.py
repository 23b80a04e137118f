"""The client: Session, Tensor, transports, the command line. Only the embedded transport reaches into `vm`."""
