"""Find contradictions in the records of an allocator."""
