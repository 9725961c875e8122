"""Name the roots of a process: variables, frames of threads, registers, mappings."""
