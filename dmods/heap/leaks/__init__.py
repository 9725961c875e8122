"""Group the leaks of a process, and name the blocks that may be no leaks."""
