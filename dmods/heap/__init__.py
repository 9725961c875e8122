"""The heap of a process: blocks of every allocator, roots, leaks, damage."""
