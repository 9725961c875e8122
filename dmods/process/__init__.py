"""The dead process: architecture, threads, stacks, signals, names for addresses, cause of death."""
