"""What the pointers of the heap say: who owns which block, and the path from a root to it."""
