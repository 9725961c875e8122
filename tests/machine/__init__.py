"""Checks of the machine, of cores before they are written, and of what cores lack."""
