"""Read the pointers and the contents of a heap: find types, owners, and growth between cores."""
