"""What the systems offer to `rankfault bench` and `rankfault doctor`."""
