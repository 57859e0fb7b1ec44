"""What the suites share: values to put in, acts to do, and every store to do them on."""
