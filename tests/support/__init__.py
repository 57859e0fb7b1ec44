"""What our own tests share: every store to run them on, terminals, and a watch for leaks."""
