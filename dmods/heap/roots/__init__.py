"""Find the memory and the registers of a process that are live without anything pointing to them."""
