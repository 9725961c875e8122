"""Find the few things that have most of the memory, and say so in sentences."""
